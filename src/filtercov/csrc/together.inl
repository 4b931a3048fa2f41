// Several vectors that take every step together: long chains of arithmetic, each step waiting for the one before, keep
// a processor busy only if it finds others beside them, and it looks no further than a few dozen instructions ahead.

template <int N>
struct Vecs {
    Vec part[N];
};

template <int N, class F>
FILTERCOV_INLINE Vecs<N> each(const F& f) {
    Vecs<N> result;
    unroll<N>([&](auto i) FILTERCOV_HERE { result.part[i.value] = f(i.value); });
    return result;
}

template <int N>
FILTERCOV_INLINE Vecs<N> operator+(const Vecs<N>& a, const Vecs<N>& b) {
    return each<N>([&](int i) FILTERCOV_HERE { return a.part[i] + b.part[i]; });
}
template <int N>
FILTERCOV_INLINE Vecs<N> operator-(const Vecs<N>& a, const Vecs<N>& b) {
    return each<N>([&](int i) FILTERCOV_HERE { return a.part[i] - b.part[i]; });
}
template <int N>
FILTERCOV_INLINE Vecs<N> operator*(const Vecs<N>& a, const Vecs<N>& b) {
    return each<N>([&](int i) FILTERCOV_HERE { return a.part[i] * b.part[i]; });
}
template <int N>
FILTERCOV_INLINE Vecs<N> operator+(const Vecs<N>& a, float b) {
    return each<N>([&](int i) FILTERCOV_HERE { return a.part[i] + b; });
}
template <int N>
FILTERCOV_INLINE Vecs<N> operator*(const Vecs<N>& a, float b) {
    return each<N>([&](int i) FILTERCOV_HERE { return a.part[i] * b; });
}
template <int N>
FILTERCOV_INLINE Vecs<N> operator/(const Vecs<N>& a, float b) {
    return each<N>([&](int i) FILTERCOV_HERE { return a.part[i] / b; });
}
template <int N>
FILTERCOV_INLINE Vecs<N> smaller(const Vecs<N>& a, float b) {
    return each<N>([&](int i) FILTERCOV_HERE { return smaller(a.part[i], broadcast(b)); });
}
template <int N>
FILTERCOV_INLINE Vecs<N> larger(const Vecs<N>& a, float b) {
    return each<N>([&](int i) FILTERCOV_HERE { return larger(a.part[i], broadcast(b)); });
}
template <int N>
FILTERCOV_INLINE Vecs<N> quotient(const Vecs<N>& a, const Vecs<N>& b) {
    return each<N>([&](int i) FILTERCOV_HERE { return quotient(a.part[i], b.part[i]); });
}

// Channels [first, first + N registers) of a row.
template <int N>
struct Whole {
    int64_t first;

    FILTERCOV_INLINE Vecs<N> zero() const { return {}; }
    FILTERCOV_INLINE Vecs<N> load(const float* row) const {
        return each<N>([&](int i) FILTERCOV_HERE { return FILTERCOV_NAMESPACE::load(row + first + i * kLanes); });
    }
    FILTERCOV_INLINE void store(float* row, const Vecs<N>& v) const {
        unroll<N>([&](auto i) FILTERCOV_HERE { FILTERCOV_NAMESPACE::store(row + first + i.value * kLanes, v.part[i.value]); });
    }
};

// The last few, which fill no register.
struct Ragged {
    int64_t first, lanes;

    FILTERCOV_INLINE Vecs<1> zero() const { return {}; }
    FILTERCOV_INLINE Vecs<1> load(const float* row) const { return {{load_first(row + first, lanes)}}; }
    FILTERCOV_INLINE void store(float* row, const Vecs<1>& v) const { store_first(row + first, v.part[0], lanes); }
};

constexpr int kTogether = kLanes >= 16 ? 2 : 4;  // vectors whose steps fill the pipes, and whose values the registers

// Call body(part) for each part of a row's channels.
template <class Body>
FILTERCOV_INLINE void for_parts(int64_t channels, const Body& body) {
    int64_t c = 0;
    for (; c + kTogether * kLanes <= channels; c += kTogether * kLanes) body(Whole<kTogether>{c});
    for (; c + kLanes <= channels; c += kLanes) body(Whole<1>{c});
    if (c < channels) body(Ragged{c, channels - c});
}

constexpr int64_t kShort = 64;  // channels of a row, at most, that is short

// Call body(part, row * channels) for each part of each row of a range. Memory is read in order; only where rows are
// short, and lie in the cache together, is one part of all of them taken after the other, which prepares it once.
template <class Body>
FILTERCOV_INLINE void for_rows(RowRange range, int64_t channels, const Body& body) {
    if (channels <= kTogether * kLanes) {
        for_parts(channels, [&](const auto& part) FILTERCOV_HERE {
            for (int64_t row = range.first; row < range.last; ++row) body(part, row * channels);
        });
    } else {
        for (int64_t row = range.first; row < range.last; ++row) {
            for_parts(channels, [&](const auto& part) FILTERCOV_HERE { body(part, row * channels); });
        }
    }
}

// first and second become the sums over the rows of a range of the two values to which body(part, row * channels, add)
// calls `add`, once.
template <class Body>
FILTERCOV_INLINE void sum_over_rows(RowRange range, int64_t channels, float* first, float* second, const Body& body) {
    if (channels <= kShort) {  // in registers: there are few other sums to go on with until one is back from memory
        for_parts(channels, [&](const auto& part) FILTERCOV_HERE {
            auto one = part.zero(), two = part.zero();
            for (int64_t row = range.first; row < range.last; ++row) {
                body(part, row * channels, [&](const auto& a, const auto& b) FILTERCOV_HERE {
                    one = one + a;
                    two = two + b;
                });
            }
            part.store(first, one);
            part.store(second, two);
        });
        return;
    }
    for_parts(channels, [&](const auto& part) FILTERCOV_HERE {
        part.store(first, {});
        part.store(second, {});
    });
    for_rows(range, channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        body(part, at, [&](const auto& a, const auto& b) FILTERCOV_HERE {
            part.store(first, part.load(first) + a);
            part.store(second, part.load(second) + b);
        });
    });
}
