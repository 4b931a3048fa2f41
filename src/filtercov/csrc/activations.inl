// The activations that follow a norm, and the gradient of each; where PyTorch's slope jumps, these do.

template <int N>
FILTERCOV_INLINE Vecs<N> where_positive(const Vecs<N>& condition, const Vecs<N>& yes, const Vecs<N>& no) {
    return each<N>([&](int i) FILTERCOV_HERE { return condition.part[i] > Vec{} ? yes.part[i] : no.part[i]; });
}

struct Identity {
    template <int N>
    FILTERCOV_INLINE static Vecs<N> value(const Vecs<N>& z) { return z; }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> gradient(const Vecs<N>& grad, const Vecs<N>&) { return grad; }
};

struct Relu {
    template <int N>
    FILTERCOV_INLINE static Vecs<N> value(const Vecs<N>& z) {
        return each<N>([&](int i) FILTERCOV_HERE { return larger(Vec{}, z.part[i]); });  // in this order nan stays nan
    }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> gradient(const Vecs<N>& grad, const Vecs<N>& z) {
        return where_positive(z, grad, {});
    }
};

struct Relu6 {
    template <int N>
    FILTERCOV_INLINE static Vecs<N> value(const Vecs<N>& z) {
        return each<N>([&](int i) FILTERCOV_HERE { return smaller(broadcast(6.0f), larger(Vec{}, z.part[i])); });
    }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> gradient(const Vecs<N>& grad, const Vecs<N>& z) {
        return where_positive(z * -1.0f + 6.0f, where_positive(z, grad, {}), {});
    }
};

// z * min(max(z + 3, 0), 6) / 6
struct Hardswish {
    template <int N>
    FILTERCOV_INLINE static Vecs<N> value(const Vecs<N>& z) { return z * (Relu6::value(z + 3.0f) * (1.0f / 6.0f)); }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> gradient(const Vecs<N>& grad, const Vecs<N>& z) {
        const Vecs<N> between = where_positive(z * -1.0f + 3.0f, grad * (z * (1.0f / 3.0f) + 0.5f), grad);
        return where_positive(z + 3.0f, between, {});
    }
};

// z * S(z), S the logistic function
struct Silu {
    template <int N>
    FILTERCOV_INLINE static Vecs<N> logistic(const Vecs<N>& z) {
        const Vecs<N> away = each<N>([&](int i) FILTERCOV_HERE { return smaller(z.part[i], -z.part[i]); });  // from zero, below it
        const Vecs<N> e = exp_of_negative(larger(away, -86.0f)), one = Vecs<N>{} + 1.0f;
        return quotient(where_positive(z, one, e), e + 1.0f);
    }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> value(const Vecs<N>& z) { return z * logistic(z); }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> gradient(const Vecs<N>& grad, const Vecs<N>& z) {
        const Vecs<N> s = logistic(z);
        return grad * (s + z * (s - s * s));
    }
};

struct Gelu {
    template <int N>
    FILTERCOV_INLINE static Vecs<N> value(const Vecs<N>& z) { return z * normal_distribution(z); }
    template <int N>
    FILTERCOV_INLINE static Vecs<N> gradient(const Vecs<N>& grad, const Vecs<N>& z) {
        return grad * gelu_slope(z, normal_distribution(z));
    }
};

// Call body(the activation of that number).
template <class Body>
FILTERCOV_INLINE void with_activation(int32_t activation, const Body& body) {
    switch (activation) {
        case FILTERCOV_RELU: return body(Relu{});
        case FILTERCOV_RELU6: return body(Relu6{});
        case FILTERCOV_HARDSWISH: return body(Hardswish{});
        case FILTERCOV_SILU: return body(Silu{});
        case FILTERCOV_GELU: return body(Gelu{});
        default: return body(Identity{});
    }
}

// out = activation(x), of the numbers [first, last).
void activate(const Activated& given, RowRange range) {
    const Activated job = given;
    with_activation(job.activation, [&](auto activation) FILTERCOV_HERE {
        for_parts(range.last - range.first, [&](const auto& part) FILTERCOV_HERE {
            part.store(job.out + range.first, activation.value(part.load(job.x + range.first)));
        });
    });
}

// out = the gradient of x.
void activate_gradient(const Activated& given, RowRange range) {
    const Activated job = given;
    with_activation(job.activation, [&](auto activation) FILTERCOV_HERE {
        for_parts(range.last - range.first, [&](const auto& part) FILTERCOV_HERE {
            const auto grad = part.load(job.grad_y + range.first), x = part.load(job.x + range.first);
            part.store(job.out + range.first, activation.gradient(grad, x));
        });
    });
}
