// BatchNorm of GELU over a (rows, channels) matrix, one range of rows at a time.
//
// GELU(x) and its slope are computed anew in every pass from x: that costs less than the memory traffic of keeping
// GELU(x), and nothing but x need be saved.

// Rows are the outer loop: memory is then read in order, and what is kept per channel stays in the L1 cache.

void sum_rows(const float* matrix, int64_t channels, RowRange range, float* sums) {
    for_channels(channels, [&](int64_t c, int64_t lanes) { store_first(sums + c, Vec{}, lanes); });
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(channels, [&](int64_t c, int64_t lanes) {
            add_first(sums + c, load_first(matrix + row * channels + c, lanes), lanes);
        });
    }
}

// Mean of GELU(x) over the rows and the sum of squared deviations from it. Values are taken relative to the first
// row's, kept in `origin`: no digits are lost where the mean is large against the spread.
void gelu_moments(const GeluBatchNorm& job, RowRange range, float* mean, float* squares, float* origin) {
    const float* x = job.x + range.first * job.channels;
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        store_first(origin + c, gelu(load_first(x + c, lanes)), lanes);
        store_first(mean + c, Vec{}, lanes);
        store_first(squares + c, Vec{}, lanes);
    });
    for (int64_t row = range.first; row < range.last; ++row, x += job.channels) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) {
            const Vec value = gelu(load_first(x + c, lanes)) - load_first(origin + c, lanes);
            add_first(mean + c, value, lanes);
            add_first(squares + c, value * value, lanes);
        });
    }
    const float count = static_cast<float>(range.last - range.first);
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        const Vec sum = load_first(mean + c, lanes), offset = sum / count;
        store_first(mean + c, load_first(origin + c, lanes) + offset, lanes);
        store_first(squares + c, load_first(squares + c, lanes) - offset * sum, lanes);
    });
}

// out = (GELU(x) - mean) * scale + shift
void gelu_normalise(const GeluBatchNorm& job, RowRange range) {
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) {
            const int64_t at = row * job.channels + c;
            const Vec centred = gelu(load_first(job.x + at, lanes)) - load_first(job.mean + c, lanes);
            const Vec y = centred * load_first(job.scale + c, lanes) + load_first(job.shift + c, lanes);
            store_first(job.out + at, y, lanes);
        });
    }
}

// Sums over the rows of grad_y and of grad_y times the normalised GELU(x): the gradients of bias and weight.
void gelu_gradient_sums(const GeluBatchNorm& job, RowRange range, float* sum_grad, float* sum_grad_normal) {
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        store_first(sum_grad + c, Vec{}, lanes);
        store_first(sum_grad_normal + c, Vec{}, lanes);
    });
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) {
            const int64_t at = row * job.channels + c;
            const Vec grad = load_first(job.grad_y + at, lanes);
            const Vec centred = gelu(load_first(job.x + at, lanes)) - load_first(job.mean + c, lanes);
            add_first(sum_grad + c, grad, lanes);
            add_first(sum_grad_normal + c, grad * (centred * load_first(job.inverse_std + c, lanes)), lanes);
        });
    }
}

// out = GELU'(x) * (scale * grad_y - shift - tilt * normalised GELU(x)): the gradient of x, where per channel scale is
// weight / std, shift the mean over all rows of scale * grad_y, and tilt that of scale * grad_y * normalised GELU(x).
void gelu_gradient(const GeluBatchNorm& job, RowRange range) {
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) {
            const int64_t at = row * job.channels + c;
            const Vec x = load_first(job.x + at, lanes), distribution = normal_distribution(x);
            const Vec centred = x * distribution - load_first(job.mean + c, lanes);
            const Vec normalised = centred * load_first(job.inverse_std + c, lanes);
            const Vec scaled = load_first(job.grad_y + at, lanes) * load_first(job.scale + c, lanes);
            const Vec grad = scaled - load_first(job.shift + c, lanes) - normalised * load_first(job.tilt + c, lanes);
            store_first(job.out + at, grad * gelu_slope(x, distribution), lanes);
        });
    }
}
