// BatchNorm of GELU over a (rows, channels) matrix, one range of rows at a time.
//
// GELU(x) = x * P(x), P the normal distribution function; its slope is P(x) + x * p(x). Both are computed anew in every
// pass from x: that costs less than the memory traffic of keeping GELU(x), and nothing but x need be saved.

// exp(v) for -87 <= v <= 0, where float32 has no overflow and no denormals.
FILTERCOV_INLINE Vec exp_of_negative(Vec v) {
    const Vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vec n = (v * 1.44269504f + magic) - magic;
    // ln 2 in two parts, the first exact in the product with n.
    const Vec r = (v - n * 0.693359375f) + n * 2.12194440e-4f;
    Vec p = broadcast(1.0f / 720.0f);
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
    return p * reinterpret_cast<Vec>(exponent);
}

// P(x) = 1/2 + x * N(x^2) / D(x^2), two polynomials fitted to the least absolute error on |x| <= 5.5, which is 7.2e-9.
// Beyond that the quotient exceeds 1/2, and P is exactly 0 or 1.
FILTERCOV_INLINE Vec normal_distribution(Vec x) {
    const Vec square = smaller(x * x, broadcast(30.25f));
    Vec n = broadcast(2.2748974e-08f);
    n = n * square + 6.3521147e-06f;
    n = n * square + 0.00016882909f;
    n = n * square + 0.0046772817f;
    n = n * square + 0.033853009f;
    n = n * square + 0.39894223f;
    Vec d = broadcast(1.1974921e-06f);
    d = d * square + 7.3648444e-05f;
    d = d * square + 0.0018844648f;
    d = d * square + 0.028646076f;
    d = d * square + 0.25152284f;
    d = d * square + 1.0f;
    const Vec half = broadcast(0.5f);
    return half + larger(smaller(x * quotient(n, d), half), -half);
}

// Never below 3e-38, which times any x of a network is still nothing.
FILTERCOV_INLINE Vec normal_density(Vec x) {
    return exp_of_negative(larger(x * x * -0.5f, broadcast(-86.0f))) * 0.398942280f;
}

FILTERCOV_INLINE Vec gelu(Vec x) { return x * normal_distribution(x); }

// Call body(first channel, lanes) for each register's worth of channels.
template <class Body>
FILTERCOV_INLINE void for_channels(int64_t channels, const Body& body) {
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) body(c, int64_t{kLanes});
    if (c < channels) body(c, channels - c);
}

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
            store_first(job.out + at, grad * (distribution + x * normal_density(x)), lanes);
        });
    }
}
