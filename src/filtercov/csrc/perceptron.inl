// What surrounds the matrix products of a ConvNeXt block: LayerNorm, GELU with a bias before it, scaled residual; what
// each computes is in filtercov_native.h.
//
// A row stays in the L1 cache between the passes over it, so LayerNorm takes mean and variance one after the other.

// Mean and 1 / sqrt(variance + eps) of each row.
void layer_moments(Rows rows, const float* x, float eps, float* mean, float* inverse_std) {
    const float channels = static_cast<float>(rows.channels);
    for (int64_t row = rows.first; row < rows.last; ++row) {
        const float* from = x + row * rows.channels;
        Vecs<1> sum = {}, squares = {};
        for_parts<1>(rows.channels, [&](const auto& part) FILTERCOV_HERE { sum = sum + part.load(from); });
        const Vecs<1> centre = Vecs<1>::all(sum_of_lanes(sum.part[0]) / channels);
        for_parts<1>(rows.channels, [&](const auto& part) FILTERCOV_HERE {
            const auto centred = part.present(part.load(from) - centre);
            squares = squares + centred * centred;
        });
        mean[row] = centre.part[0][0];
        inverse_std[row] = 1.0f / __builtin_sqrtf(sum_of_lanes(squares.part[0]) / channels + eps);
    }
}

// y = (x - mean) * inverse_std * weight + bias; mean and inverse_std per row, weight and bias per channel.
void layer_normalise(Rows rows, const float* x, const float* mean, const float* inverse_std, const float* weight,
                     const float* bias, float* y) {
    for (int64_t row = rows.first; row < rows.last; ++row) {
        const int64_t at = row * rows.channels;
        const auto centre = Vecs<1>::all(mean[row]), scale = Vecs<1>::all(inverse_std[row]);
        for_parts<1>(rows.channels, [&](const auto& part) FILTERCOV_HERE {
            const auto normalised = (part.load(x + at) - centre) * scale;
            part.store(y + at, normalised * part.load(weight) + part.load(bias));
        });
    }
}

// grad_x = (g - mean(g) - normalised * mean(g * normalised)) * inverse_std, where g = grad_y * weight and the means are
// over the row; and per channel the sums over the rows of grad_y and of grad_y * normalised. grad_x may be grad_y.
void layer_gradient(Rows rows, const float* grad_y, const float* x, const float* mean, const float* inverse_std,
                    const float* weight, float* grad_x, float* sums, float* weighted) {
    const float channels = static_cast<float>(rows.channels);
    for (int64_t row = rows.first; row < rows.last; ++row) {
        const int64_t at = row * rows.channels;
        const auto centre = Vecs<1>::all(mean[row]), scale = Vecs<1>::all(inverse_std[row]);
        Vecs<1> sum = {}, along = {};
        for_parts<1>(rows.channels, [&](const auto& part) FILTERCOV_HERE {
            const auto grad = part.load(grad_y + at), g = grad * part.load(weight);
            const auto normalised = (part.load(x + at) - centre) * scale, product = grad * normalised;
            sum = sum + g;
            along = along + g * normalised;  // zero in the lanes past the row, as g is
            part.store(sums, part.load(sums) + grad);
            part.store(weighted, part.load(weighted) + product);
        });
        const auto level = Vecs<1>::all(sum_of_lanes(sum.part[0]) / channels);
        const auto tilt = Vecs<1>::all(sum_of_lanes(along.part[0]) / channels);
        for_parts<1>(rows.channels, [&](const auto& part) FILTERCOV_HERE {
            const auto g = part.load(grad_y + at) * part.load(weight);
            const auto normalised = (part.load(x + at) - centre) * scale;
            part.store(grad_x + at, (g - level - normalised * tilt) * scale);
        });
    }
}

void bias_gelu(Rows rows, const float* x, const float* bias, float* y) {
    for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        part.store(y + at, Gelu::value(part.load(x + at) + part.load(bias)));
    });
}

void bias_gelu_gradient(Rows rows, const float* x, const float* bias, const float* grad_y, float* y, float* grad_x,
                        float* sums) {
    for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto z = part.load(x + at) + part.load(bias), distribution = normal_distribution(z);
        const auto grad = part.load(grad_y + at) * gelu_slope(z, distribution);
        part.store(y + at, z * distribution);
        part.store(grad_x + at, grad);
        part.store(sums, part.load(sums) + grad);
    });
}

void scaled_residual(Rows rows, const float* x, const float* bias, const float* scale, const float* shortcut,
                     float* y) {
    for (int64_t at = rows.first * rows.channels; at < rows.last * rows.channels; at += rows.channels) {
        for_parts<1>(rows.channels, [&](const auto& part) FILTERCOV_HERE {
            const auto branch = part.load(x + at) + part.load(bias);
            const auto scaled = scale == nullptr ? branch : branch * part.load(scale);
            part.store(y + at, shortcut == nullptr ? scaled : scaled + part.load(shortcut + at));
        });
    }
}
