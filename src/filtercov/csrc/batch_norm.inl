// BatchNorm of a (rows, channels) matrix with an activation after it, or GELU before it, one range of rows at a time.
//
// In training, forward and backward are two passes each, with sums over all rows between them. With the activation
// after the norm, what lies between the two is kept nowhere: both passes of the backward compute it again from x, which
// costs less than fetching it. With GELU before the norm, the first pass leaves GELU(x), or backward the normal
// distribution function, where the second will write its result: fetching those costs less than computing them again.

// The mean over the rows and the sum of squared deviations from it, per channel: of x, or if `activated` is not null of
// GELU(x), which is written there. Values are taken relative to the first row's: no digits are lost where the mean is
// large against the spread.
void moments(Rows rows, const float* x, float* activated, float* mean, float* squares) {
    const float* origin = x + rows.first * rows.channels;
    if (activated != nullptr) {
        float* first = activated + rows.first * rows.channels;
        gelu(rows.channels, origin, first);
        origin = first;
        sum_in_memory(rows, mean, squares, [&](const auto& part, int64_t at, const auto& add) FILTERCOV_HERE {
            const auto result = Gelu::value(part.load(x + at)), value = result - part.load(origin);
            part.store(activated + at, result);
            add(value, value * value);
        });
    } else {
        sum_over_rows(rows, mean, squares, [&](const auto& part, int64_t at, const auto& add) FILTERCOV_HERE {
            const auto value = part.load(x + at) - part.load(origin);
            add(value, value * value);
        });
    }
    const float count = static_cast<float>(rows.last - rows.first);
    for_parts(rows.channels, [&](const auto& part) FILTERCOV_HERE {
        const auto sum = part.load(mean), offset = sum / count;
        part.store(mean, part.load(origin) + offset);
        part.store(squares, part.load(squares) - offset * sum);
    });
}

// y = activation((x - mean) * scale + bias). With a residual, which may be null, y = (x - mean) * scale + bias +
// residual, and the activation must be the identity. y may be x.
void normalise(Rows rows, int32_t activation, const float* x, const float* mean, const float* scale, const float* bias,
               const float* residual, float* y) {
    if (residual != nullptr) {
        for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
            const auto centred = part.load(x + at) - part.load(mean);
            const auto normalised = centred * part.load(scale) + part.load(bias);
            part.store(y + at, normalised + part.load(residual + at));
        });
        return;
    }
    with_activation(activation, [&](auto act) FILTERCOV_HERE {
        for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
            const auto centred = part.load(x + at) - part.load(mean);
            part.store(y + at, act.value(centred * part.load(scale) + part.load(bias)));
        });
    });
}

// Per channel, the sums over the rows of g, the gradient of the norm's output, and of g times the norm's centred input:
// x - mean, or with GELU first (GELU(x) - mean) * inverse_std.
void norm_gradient_sums(Rows rows, const NormGradient& given, float* sums, float* weighted) {
    const NormGradient job = given;
    if (job.activation_first) {
        sum_in_memory(rows, sums, weighted, [&](const auto& part, int64_t at, const auto& add) FILTERCOV_HERE {
            const auto x = part.load(job.x + at), distribution = normal_distribution(x);
            part.store(job.grad_x + at, distribution);
            const auto normalised = (x * distribution - part.load(job.mean)) * part.load(job.inverse_std);
            const auto grad = part.load(job.grad_y + at);
            add(grad, grad * normalised);
        });
        return;
    }
    with_activation(job.activation, [&](auto act) FILTERCOV_HERE {
        sum_over_rows(rows, sums, weighted, [&](const auto& part, int64_t at, const auto& add) FILTERCOV_HERE {
            const auto centred = part.load(job.x + at) - part.load(job.mean);
            const auto entered = centred * part.load(job.scale) + part.load(job.bias);
            const auto grad = act.gradient(part.load(job.grad_y + at), entered);
            add(grad, grad * centred);
        });
    });
}

// grad_x = scale * g - shift - tilt * centred input, with g and the centred input as above; where GELU is first, times
// GELU'(x). Per channel, scale is weight / std, shift the mean over all rows of scale * g, and tilt that of scale * g *
// centred input, divided by the centred input's variance.
void norm_gradient(Rows rows, const NormGradient& given) {
    const NormGradient job = given;
    if (job.activation_first) {
        for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
            const auto x = part.load(job.x + at), distribution = part.load(job.grad_x + at);
            const auto normalised = (x * distribution - part.load(job.mean)) * part.load(job.inverse_std);
            const auto scaled = part.load(job.grad_y + at) * part.load(job.scale);
            const auto grad = scaled - part.load(job.shift) - normalised * part.load(job.tilt);
            part.store(job.grad_x + at, grad * gelu_slope(x, distribution));
        });
        return;
    }
    with_activation(job.activation, [&](auto act) FILTERCOV_HERE {
        for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
            const auto centred = part.load(job.x + at) - part.load(job.mean), scale = part.load(job.scale);
            const auto grad = act.gradient(part.load(job.grad_y + at), centred * scale + part.load(job.bias));
            part.store(job.grad_x + at, grad * scale - part.load(job.shift) - centred * part.load(job.tilt));
        });
    });
}
