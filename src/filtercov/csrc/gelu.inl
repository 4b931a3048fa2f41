// GELU and its slope, on a vector and over the rows of a matrix to which a bias is added first.
//
// GELU(x) = x * P(x), P the normal distribution function; its slope is P(x) + x * p(x).

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

// The slope, given P(x).
FILTERCOV_INLINE Vec gelu_slope(Vec x, Vec distribution) { return distribution + x * normal_density(x); }

// y = GELU(x + bias), row by row; y may be x.
void bias_gelu(const BiasGelu& job, RowRange range) {
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) {
            const int64_t at = row * job.channels + c;
            store_first(job.y + at, gelu(load_first(job.x + at, lanes) + load_first(job.bias + c, lanes)), lanes);
        });
    }
}

// The same y once more, grad_x = grad_y * GELU'(x + bias), and the sums of grad_x over the rows; grad_x may be grad_y.
void bias_gelu_gradient(const BiasGelu& job, RowRange range, float* sums) {
    for_channels(job.channels, [&](int64_t c, int64_t lanes) { store_first(sums + c, Vec{}, lanes); });
    for (int64_t row = range.first; row < range.last; ++row) {
        for_channels(job.channels, [&](int64_t c, int64_t lanes) {
            const int64_t at = row * job.channels + c;
            const Vec x = load_first(job.x + at, lanes) + load_first(job.bias + c, lanes);
            const Vec distribution = normal_distribution(x);
            const Vec grad = load_first(job.grad_y + at, lanes) * gelu_slope(x, distribution);
            store_first(job.y + at, x * distribution, lanes);
            store_first(job.grad_x + at, grad, lanes);
            add_first(sums + c, grad, lanes);
        });
    }
}
