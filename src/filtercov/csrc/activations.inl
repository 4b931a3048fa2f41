// The activations, each with its gradient; where PyTorch's slope jumps, these do.

// yes where condition > 0, no elsewhere.
template <int N>
FILTERCOV_INLINE Vecs<N> where_positive(const Vecs<N>& condition, const Vecs<N>& yes, const Vecs<N>& no) {
    return Vecs<N>::each([&](int i) FILTERCOV_HERE { return condition.part[i] > Vec{} ? yes.part[i] : no.part[i]; });
}

// exp(v) for -87 <= v <= 0, where float32 has no overflow and no denormals.
template <int N> FILTERCOV_INLINE Vecs<N> exp_of_negative(const Vecs<N>& v) {
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
    return Vecs<N>::each([&](int i) FILTERCOV_HERE {
        const IntVec exponent = (__builtin_convertvector(n.part[i], IntVec) + 127) << 23;
        return p.part[i] * reinterpret_cast<Vec>(exponent);
    });
}

// The normal distribution function P(x) = 1/2 + x * N(x^2) / D(x^2), two polynomials fitted to the least absolute error
// on |x| <= 5.5, which is 7.2e-9. Beyond that the quotient exceeds 1/2, and P is exactly 0 or 1.
template <int N> FILTERCOV_INLINE Vecs<N> normal_distribution(const Vecs<N>& x) {
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

// The slope of GELU(x) = x * P(x), given P(x): P(x) + x * p(x), p the normal density. The exponent ends at -86, so that
// p is never below 3e-38, which times any x of a network is still nothing.
template <int N> FILTERCOV_INLINE Vecs<N> gelu_slope(const Vecs<N>& x, const Vecs<N>& distribution) {
    const Vecs<N> density = exp_of_negative(larger(x * x * -0.5f, -86.0f)) * 0.398942280f;
    return distribution + x * density;
}

struct Identity {
    template <class V> FILTERCOV_INLINE static V value(const V& z) { return z; }
    template <class V> FILTERCOV_INLINE static V gradient(const V& grad, const V&) { return grad; }
};

struct Relu {
    template <class V>
    FILTERCOV_INLINE static V value(const V& z) { return larger(V{}, z); }  // in this order nan stays nan
    template <class V>
    FILTERCOV_INLINE static V gradient(const V& grad, const V& z) { return where_positive(z, grad, {}); }
};

struct Relu6 {
    template <class V> FILTERCOV_INLINE static V value(const V& z) { return smaller(V::all(6.0f), larger(V{}, z)); }
    template <class V> FILTERCOV_INLINE static V gradient(const V& grad, const V& z) {
        return where_positive(z * -1.0f + 6.0f, where_positive(z, grad, {}), {});
    }
};

// z * min(max(z + 3, 0), 6) / 6
struct Hardswish {
    template <class V>
    FILTERCOV_INLINE static V value(const V& z) { return z * (Relu6::value(z + 3.0f) * (1.0f / 6.0f)); }
    template <class V> FILTERCOV_INLINE static V gradient(const V& grad, const V& z) {
        const V between = where_positive(z * -1.0f + 3.0f, grad * (z * (1.0f / 3.0f) + 0.5f), grad);
        return where_positive(z + 3.0f, between, {});
    }
};

// z * S(z), S the logistic function
struct Silu {
    template <class V> FILTERCOV_INLINE static V logistic(const V& z) {
        const V e = exp_of_negative(larger(smaller(z, -z), -86.0f));  // exp(-|z|)
        return quotient(where_positive(z, V::all(1.0f), e), e + 1.0f);
    }
    template <class V> FILTERCOV_INLINE static V value(const V& z) { return z * logistic(z); }
    template <class V> FILTERCOV_INLINE static V gradient(const V& grad, const V& z) {
        const V s = logistic(z);
        return grad * (s + z * (s - s * s));
    }
};

struct Gelu {
    template <class V> FILTERCOV_INLINE static V value(const V& z) { return z * normal_distribution(z); }
    template <class V> FILTERCOV_INLINE static V gradient(const V& grad, const V& z) {
        return grad * gelu_slope(z, normal_distribution(z));
    }
};

// Call body(the activation of that number).
template <class Body> FILTERCOV_INLINE void with_activation(int32_t activation, const Body& body) {
    switch (activation) {
        case FILTERCOV_RELU: return body(Relu{});
        case FILTERCOV_RELU6: return body(Relu6{});
        case FILTERCOV_HARDSWISH: return body(Hardswish{});
        case FILTERCOV_SILU: return body(Silu{});
        case FILTERCOV_GELU: return body(Gelu{});
        default: return body(Identity{});
    }
}

void gelu(int64_t count, const float* x, float* y) {
    for_parts(count, [&](const auto& part) FILTERCOV_HERE { part.store(y, Gelu::value(part.load(x))); });
}

void gelu_gradient(int64_t count, const float* grad_y, const float* x, float* grad_x) {
    for_parts(count, [&](const auto& part) FILTERCOV_HERE {
        part.store(grad_x, Gelu::gradient(part.load(grad_y), part.load(x)));
    });
}
