// Loops over the rows of a (rows, channels) matrix, several vectors of channels at a time.
//
// Activations are long chains of arithmetic, each step waiting for the one before. A processor looks only a few dozen
// instructions ahead for other work, so the kernels interleave the chains of several vectors, step by step.

// N vectors that take every step together.
template <int N> struct Vecs {
    Vec part[N];

    template <class F> FILTERCOV_INLINE static Vecs each(const F& f) {
        Vecs result;
        unroll<N>([&](auto i) FILTERCOV_HERE { result.part[i.value] = f(i.value); });
        return result;
    }
    FILTERCOV_INLINE static Vecs all(float value) {
        return each([&](int) FILTERCOV_HERE { return broadcast(value); });
    }

#define FILTERCOV_BOTH(name, expression)                               \
    FILTERCOV_INLINE friend Vecs name(const Vecs& a, const Vecs& b) {  \
        return each([&](int i) FILTERCOV_HERE { return expression; }); \
    }
    FILTERCOV_BOTH(operator+, a.part[i] + b.part[i])
    FILTERCOV_BOTH(operator-, a.part[i] - b.part[i])
    FILTERCOV_BOTH(operator*, a.part[i] * b.part[i])
    FILTERCOV_BOTH(operator/, a.part[i] / b.part[i])
    FILTERCOV_BOTH(quotient, quotient(a.part[i], b.part[i]))
    FILTERCOV_BOTH(smaller, smaller(a.part[i], b.part[i]))
    FILTERCOV_BOTH(larger, larger(a.part[i], b.part[i]))
#undef FILTERCOV_BOTH

    FILTERCOV_INLINE friend Vecs operator-(const Vecs& a) {
        return each([&](int i) FILTERCOV_HERE { return -a.part[i]; });
    }
    FILTERCOV_INLINE friend Vecs operator+(const Vecs& a, float b) { return a + all(b); }
    FILTERCOV_INLINE friend Vecs operator*(const Vecs& a, float b) { return a * all(b); }
    FILTERCOV_INLINE friend Vecs operator/(const Vecs& a, float b) { return a / all(b); }
    FILTERCOV_INLINE friend Vecs smaller(const Vecs& a, float b) { return smaller(a, all(b)); }
    FILTERCOV_INLINE friend Vecs larger(const Vecs& a, float b) { return larger(a, all(b)); }
};

// Channels [first, first + N registers) of a row.
template <int N> struct Whole {
    int64_t first;

    FILTERCOV_INLINE Vecs<N> present(const Vecs<N>& v) const { return v; }
    FILTERCOV_INLINE Vecs<N> load(const float* row) const {
        return Vecs<N>::each([&](int i) FILTERCOV_HERE { return FILTERCOV_NAMESPACE::load(row + first + i * kLanes); });
    }
    FILTERCOV_INLINE void store(float* row, const Vecs<N>& v) const {
        unroll<N>([&](auto i) FILTERCOV_HERE {
            FILTERCOV_NAMESPACE::store(row + first + i.value * kLanes, v.part[i.value]);
        });
    }
};

// The last channels of a row, fewer than a register holds. Lanes past them are loaded as zero; after arithmetic,
// present() makes them zero again.
struct Ragged {
    int64_t first, lanes;

    FILTERCOV_INLINE Vecs<1> present(Vecs<1> v) const {
        for (int64_t lane = lanes; lane < kLanes; ++lane) v.part[0][lane] = 0.0f;
        return v;
    }
    FILTERCOV_INLINE Vecs<1> load(const float* row) const { return {{load_first(row + first, lanes)}}; }
    FILTERCOV_INLINE void store(float* row, const Vecs<1>& v) const { store_first(row + first, v.part[0], lanes); }
};

constexpr int kInterleaved = kLanes >= 16 ? 2 : 4;  // enough to fill the pipelines, few enough for the registers

// Call body(part) for each part of a row's channels: `AtOnce` registers at a time, then one, then the ragged rest.
template <int AtOnce = kInterleaved, class Body>
FILTERCOV_INLINE void for_parts(int64_t channels, const Body& body) {
    int64_t c = 0;
    for (; c + AtOnce * kLanes <= channels; c += AtOnce * kLanes) body(Whole<AtOnce>{c});
    if constexpr (AtOnce > 1) {
        for (; c + kLanes <= channels; c += kLanes) body(Whole<1>{c});
    }
    if (c < channels) body(Ragged{c, channels - c});
}

// Call body(part, row * channels) for each part of each row, in the order of memory. Only where a row is a few parts is
// each part taken through all rows in turn, so that what depends on the channel alone is loaded once.
template <class Body> FILTERCOV_INLINE void for_rows(Rows rows, const Body& body) {
    if (rows.channels <= kInterleaved * kLanes) {
        for_parts(rows.channels, [&](const auto& part) FILTERCOV_HERE {
            for (int64_t row = rows.first; row < rows.last; ++row) body(part, row * rows.channels);
        });
    } else {
        for (int64_t row = rows.first; row < rows.last; ++row) {
            for_parts(rows.channels, [&](const auto& part) FILTERCOV_HERE { body(part, row * rows.channels); });
        }
    }
}

// first and second, per channel, which are zero, become the sums over the rows of the two values that
// body(part, row * channels, add) passes to `add`, once each time.
template <class Body>
FILTERCOV_INLINE void sum_in_memory(Rows rows, float* first, float* second, const Body& body) {
    for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        body(part, at, [&](const auto& a, const auto& b) FILTERCOV_HERE {
            part.store(first, part.load(first) + a);
            part.store(second, part.load(second) + b);
        });
    });
}

constexpr int64_t kSummedInRegisters = 64;  // channels, at most

// The same, in registers where channels are few: in memory, too few other sums would then hide the wait for each.
template <class Body>
FILTERCOV_INLINE void sum_over_rows(Rows rows, float* first, float* second, const Body& body) {
    if (rows.channels > kSummedInRegisters) return sum_in_memory(rows, first, second, body);
    for_parts(rows.channels, [&](const auto& part) FILTERCOV_HERE {
        decltype(part.load(first)) one = {}, two = {};
        for (int64_t row = rows.first; row < rows.last; ++row) {
            body(part, row * rows.channels, [&](const auto& a, const auto& b) FILTERCOV_HERE {
                one = one + a;
                two = two + b;
            });
        }
        part.store(first, one);
        part.store(second, two);
    });
}

// sums += the sums of x over the rows, per channel.
void sum_rows(Rows rows, const float* x, float* sums) {
    for_rows(rows, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        part.store(sums, part.load(sums) + part.load(x + at));
    });
}
