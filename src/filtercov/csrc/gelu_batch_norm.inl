// BatchNorm of GELU over a (rows, channels) matrix, one range of rows at a time.
//
// GELU(x) = x * P(x), P the normal distribution function; its slope is P(x) + x * p(x). Both are computed anew in every
// pass from x: that costs less than the memory traffic of keeping GELU(x), and nothing but x need be saved.

// exp(v) for v <= 0; zero below -87, where float32 would go denormal.
FILTERCOV_INLINE Vec exp_of_negative(Vec v) {
    const Vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vec clamped = v < -87.0f ? broadcast(-87.0f) : v;
    const Vec n = (clamped * 1.44269504f + magic) - magic;
    // ln 2 in two parts, the first exact in the product with n.
    const Vec r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    Vec p = broadcast(1.0f / 720.0f);
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const IntVec exponent = (__builtin_convertvector(n, IntVec) + 127) << 23;
    const Vec result = p * reinterpret_cast<Vec>(exponent);
    return v < -87.0f ? Vec{} : result;
}

struct Normal {
    Vec density, distribution;
};

// P(-|x|) = exp(-x^2 / 2) * Q(t) with t = 1 / (1 + 0.21 |x|). The polynomial Q was fitted to the least relative error
// on |x| <= 14, which is 1.6e-8; beyond that P is zero in float32.
FILTERCOV_INLINE Normal normal(Vec x) {
    const Vec size = x < 0.0f ? -x : x;
    const Vec bell = exp_of_negative(x * x * -0.5f);
    const Vec t = 1.0f / (size * 0.21f + 1.0f);
    Vec q = broadcast(-0.071656294f);
    q = q * t + 0.28358847f;
    q = q * t - 0.3302531f;
    q = q * t + 0.34940064f;
    q = q * t - 0.093924925f;
    q = q * t + 0.1248726f;
    q = q * t + 0.0691922f;
    q = q * t + 0.08506885f;
    q = q * t + 0.08371158f;
    const Vec tail = q * t * bell;
    return {bell * 0.398942280f, x < 0.0f ? tail : 1.0f - tail};
}

FILTERCOV_INLINE Vec gelu(Vec x) { return x * normal(x).distribution; }

// Call body(first channel, lanes) for each register's worth of channels.
template <class Body>
FILTERCOV_INLINE void for_channels(int64_t channels, const Body& body) {
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) body(c, int64_t{kLanes});
    if (c < channels) body(c, channels - c);
}

void sum_rows(const float* matrix, int64_t channels, RowRange range, float* sums) {
    for_channels(channels, [&](int64_t c, int64_t lanes) {
        Vec sum = {};
        for (int64_t row = range.first; row < range.last; ++row) sum += load_first(matrix + row * channels + c, lanes);
        store_first(sums + c, sum, lanes);
    });
}

// Mean of GELU(x) over the rows and the sum of squared deviations from it. Values are taken relative to the first
// row's: no digits are lost where the mean is large against the spread.
void gelu_moments(const GeluBatchNorm& job, RowRange range, float* mean, float* squares) {
    const float count = static_cast<float>(range.last - range.first);
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        const float* x = job.x + range.first * job.channels + c;
        const Vec origin = gelu(load_first(x, lanes));
        Vec sum = {}, square = {};
        for (int64_t row = range.first; row < range.last; ++row, x += job.channels) {
            const Vec value = gelu(load_first(x, lanes)) - origin;
            sum += value;
            square += value * value;
        }
        const Vec offset = sum / count;
        store_first(mean + c, origin + offset, lanes);
        store_first(squares + c, square - offset * sum, lanes);
    });
}

// out = (GELU(x) - mean) * scale + shift
void gelu_normalise(const GeluBatchNorm& job, RowRange range) {
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        const Vec scale = load_first(job.scale + c, lanes), shift = load_first(job.shift + c, lanes);
        const Vec mean = load_first(job.mean + c, lanes);
        for (int64_t row = range.first; row < range.last; ++row) {
            const int64_t at = row * job.channels + c;
            store_first(job.out + at, (gelu(load_first(job.x + at, lanes)) - mean) * scale + shift, lanes);
        }
    });
}

// Sums over the rows of grad_y and of grad_y times the normalised GELU(x): the gradients of bias and weight.
void gelu_gradient_sums(const GeluBatchNorm& job, RowRange range, float* sum_grad, float* sum_grad_normal) {
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        const Vec mean = load_first(job.mean + c, lanes), inverse_std = load_first(job.inverse_std + c, lanes);
        Vec plain = {}, weighted = {};
        for (int64_t row = range.first; row < range.last; ++row) {
            const int64_t at = row * job.channels + c;
            const Vec grad = load_first(job.grad_y + at, lanes);
            plain += grad;
            weighted += grad * ((gelu(load_first(job.x + at, lanes)) - mean) * inverse_std);
        }
        store_first(sum_grad + c, plain, lanes);
        store_first(sum_grad_normal + c, weighted, lanes);
    });
}

// out = GELU'(x) * (scale * grad_y - shift - tilt * normalised GELU(x)): the gradient of x, where per channel scale is
// weight / std, shift the mean over all rows of scale * grad_y, and tilt that of scale * grad_y * normalised GELU(x).
void gelu_gradient(const GeluBatchNorm& job, RowRange range) {
    for_channels(job.channels, [&](int64_t c, int64_t lanes) {
        const Vec mean = load_first(job.mean + c, lanes), inverse_std = load_first(job.inverse_std + c, lanes);
        const Vec scale = load_first(job.scale + c, lanes), shift = load_first(job.shift + c, lanes);
        const Vec tilt = load_first(job.tilt + c, lanes);
        for (int64_t row = range.first; row < range.last; ++row) {
            const int64_t at = row * job.channels + c;
            const Vec x = load_first(job.x + at, lanes);
            const Normal n = normal(x);
            const Vec normalised = (x * n.distribution - mean) * inverse_std;
            const Vec grad = load_first(job.grad_y + at, lanes) * scale - shift - normalised * tilt;
            store_first(job.out + at, grad * (n.distribution + x * n.density), lanes);
        }
    });
}
