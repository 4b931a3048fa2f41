// GELU and its slope, on vectors and over the rows of a matrix to which a bias is added first.
//
// GELU(x) = x * P(x), P the normal distribution function; its slope is P(x) + x * p(x).

// exp(v) for -87 <= v <= 0, where float32 has no overflow and no denormals.
template <int N>
FILTERCOV_INLINE Vecs<N> exp_of_negative(const Vecs<N>& v) {
    constexpr float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const Vecs<N> n = (v * 1.44269504f + magic) + -magic;
    // ln 2 in two parts, the first exact in the product with n.
    const Vecs<N> r = (v - n * 0.693359375f) + n * 2.12194440e-4f;
    Vecs<N> p = r * (1.0f / 720.0f) + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return each<N>([&](int i) FILTERCOV_HERE {
        const IntVec exponent = (__builtin_convertvector(n.part[i], IntVec) + 127) << 23;
        return p.part[i] * reinterpret_cast<Vec>(exponent);
    });
}

// P(x) = 1/2 + x * N(x^2) / D(x^2), two polynomials fitted to the least absolute error on |x| <= 5.5, which is 7.2e-9.
// Beyond that the quotient exceeds 1/2, and P is exactly 0 or 1.
template <int N>
FILTERCOV_INLINE Vecs<N> normal_distribution(const Vecs<N>& x) {
    const Vecs<N> square = smaller(x * x, 30.25f);
    Vecs<N> n = square * 2.2748974e-08f + 6.3521147e-06f;
    Vecs<N> d = square * 1.1974921e-06f + 7.3648444e-05f;
    n = n * square + 0.00016882909f;
    d = d * square + 0.0018844648f;
    n = n * square + 0.0046772817f;
    d = d * square + 0.028646076f;
    n = n * square + 0.033853009f;
    d = d * square + 0.25152284f;
    n = n * square + 0.39894223f;
    d = d * square + 1.0f;
    return larger(smaller(x * quotient(n, d), 0.5f), -0.5f) + 0.5f;
}

// Never below 3e-38, which times any x of a network is still nothing.
template <int N>
FILTERCOV_INLINE Vecs<N> normal_density(const Vecs<N>& x) {
    return exp_of_negative(larger(x * x * -0.5f, -86.0f)) * 0.398942280f;
}

// The slope, given P(x).
template <int N>
FILTERCOV_INLINE Vecs<N> gelu_slope(const Vecs<N>& x, const Vecs<N>& distribution) {
    return distribution + x * normal_density(x);
}

// y = GELU(x + bias), row by row; y may be x.
void bias_gelu(const BiasGelu& given, RowRange range) {
    const BiasGelu job = given;
    for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto x = part.load(job.x + at) + part.load(job.bias);
        part.store(job.y + at, x * normal_distribution(x));
    });
}

// The same y once more, grad_x = grad_y * GELU'(x + bias), and the sums of grad_x over the rows; grad_x may be grad_y.
void bias_gelu_gradient(const BiasGelu& given, RowRange range, float* sums) {
    const BiasGelu job = given;
    for_parts(job.channels, [&](const auto& part) FILTERCOV_HERE { part.store(sums, {}); });
    for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto x = part.load(job.x + at) + part.load(job.bias), distribution = normal_distribution(x);
        const auto grad = part.load(job.grad_y + at) * gelu_slope(x, distribution);
        part.store(job.y + at, x * distribution);
        part.store(job.grad_x + at, grad);
        part.store(sums, part.load(sums) + grad);
    });
}
