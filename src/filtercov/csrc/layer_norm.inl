// LayerNorm and the scaled residual: row by row over a (rows, channels) matrix.
//
// A row stays in the L1 cache between the passes over it, so that mean and variance can be taken one after the other.

// `count` lanes of v, the others zero.
FILTERCOV_INLINE Vec first_lanes(Vec v, int64_t count) {
    for (int64_t lane = count; lane < kLanes; ++lane) v[lane] = 0.0f;
    return v;
}

// Mean and 1 / sqrt(variance + eps) of each row.
void layer_moments(const LayerNorm& given, RowRange range, float* mean, float* inverse_std) {
    const LayerNorm job = given;
    const float channels = static_cast<float>(job.channels);
    for (int64_t row = range.first; row < range.last; ++row) {
        const float* x = job.x + row * job.channels;
        Vec sum = {}, squares = {};
        for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE { sum += load_first(x + c, lanes); });
        const Vec centre = broadcast(sum_of_lanes(sum) / channels);
        for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE {
            const Vec centred = first_lanes(load_first(x + c, lanes) - centre, lanes);
            squares += centred * centred;
        });
        mean[row] = centre[0];
        inverse_std[row] = 1.0f / __builtin_sqrtf(sum_of_lanes(squares) / channels + job.eps);
    }
}

// out = (x - mean) * inverse_std * weight + bias
void layer_normalise(const LayerNorm& given, RowRange range) {
    const LayerNorm job = given;
    for (int64_t row = range.first; row < range.last; ++row) {
        const Vec mean = broadcast(job.mean[row]), inverse_std = broadcast(job.inverse_std[row]);
        for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE {
            const int64_t at = row * job.channels + c;
            const Vec normalised = (load_first(job.x + at, lanes) - mean) * inverse_std;
            const Vec y = normalised * load_first(job.weight + c, lanes) + load_first(job.bias + c, lanes);
            store_first(job.out + at, y, lanes);
        });
    }
}

// out = (g - mean(g) - normalised * mean(g * normalised)) * inverse_std, where g is grad_y * weight and the means are
// over the row; and the sums over the rows of grad_y and of grad_y * normalised. out may be grad_y.
void layer_norm_gradient(const LayerNorm& given, RowRange range, float* sum_grad, float* sum_grad_normal) {
    const LayerNorm job = given;
    const float channels = static_cast<float>(job.channels);
    for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE {
        store_first(sum_grad + c, Vec{}, lanes);
        store_first(sum_grad_normal + c, Vec{}, lanes);
    });
    for (int64_t row = range.first; row < range.last; ++row) {
        const float *grad_y = job.grad_y + row * job.channels, *x = job.x + row * job.channels;
        const Vec mean = broadcast(job.mean[row]), inverse_std = broadcast(job.inverse_std[row]);
        Vec sum = {}, along = {};
        for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE {
            const Vec grad = load_first(grad_y + c, lanes), weighted = grad * load_first(job.weight + c, lanes);
            const Vec normalised = (load_first(x + c, lanes) - mean) * inverse_std;
            sum += weighted;
            along += weighted * normalised;  // zero in the lanes past the row, as grad is
            add_first(sum_grad + c, grad, lanes);
            add_first(sum_grad_normal + c, grad * normalised, lanes);
        });
        const Vec level = broadcast(sum_of_lanes(sum) / channels), tilt = broadcast(sum_of_lanes(along) / channels);
        for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE {
            const Vec weighted = load_first(grad_y + c, lanes) * load_first(job.weight + c, lanes);
            const Vec normalised = (load_first(x + c, lanes) - mean) * inverse_std;
            store_first(job.out + row * job.channels + c, (weighted - level - tilt * normalised) * inverse_std, lanes);
        });
    }
}

// out = (x + bias) * scale + shortcut; out may be x.
void scaled_residual(const Residual& given, RowRange range) {
    const Residual job = given;
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) FILTERCOV_HERE {
            const int64_t at = row * job.channels + c;
            const Vec branch = load_first(job.x + at, lanes) + load_first(job.bias + c, lanes);
            const Vec scaled = job.scale == nullptr ? branch : branch * load_first(job.scale + c, lanes);
            const Vec y = job.shortcut == nullptr ? scaled : scaled + load_first(job.shortcut + at, lanes);
            store_first(job.out + at, y, lanes);
        });
    }
}
