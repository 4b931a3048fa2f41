// Vectors of float as the compiler's own vector type, so that one source serves every instruction set.
//
// The kernels call no function of the standard library: its inline functions would be shared between files compiled
// with different flags.

// Where nothing is optimised, as under the sanitizers, inlining would only make the code long, and slow to compile.
#ifdef __OPTIMIZE__
#define FILTERCOV_ALWAYS_INLINE __attribute__((always_inline))
#else
#define FILTERCOV_ALWAYS_INLINE
#endif
#define FILTERCOV_INLINE inline FILTERCOV_ALWAYS_INLINE
// After a lambda's parameters. Inlined, what it captures stays in registers. Kernels therefore copy a struct of
// pointers before they capture it: one that lies elsewhere would be read again after each store.
#define FILTERCOV_HERE FILTERCOV_ALWAYS_INLINE

constexpr int kVectors = kBlock / kLanes;  // registers per channel block

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float LooseVec __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));

FILTERCOV_INLINE Vec load(const float* p) { return *reinterpret_cast<const LooseVec*>(p); }
FILTERCOV_INLINE void store(float* p, Vec v) { *reinterpret_cast<LooseVec*>(p) = v; }
FILTERCOV_INLINE Vec broadcast(float value) { return Vec{} + value; }

// The same address, hidden from the optimiser. Otherwise, with all registers in use, it keeps vectors that it has
// loaded from there for a second use, and spills sums to memory instead.
FILTERCOV_INLINE const float* anew(const float* p) {
    __asm__ __volatile__("" : "+r"(p));
    return p;
}

// The first `count` lanes, the others zero; `count` may lie outside [0, kLanes].
FILTERCOV_INLINE Vec load_first(const float* p, int64_t count) {
    if (count >= kLanes) return load(p);
    Vec v = {};
    for (int64_t lane = 0; lane < count; ++lane) v[lane] = p[lane];
    return v;
}

FILTERCOV_INLINE void store_first(float* p, Vec v, int64_t count) {
    if (count >= kLanes) return store(p, v);
    for (int64_t lane = 0; lane < count; ++lane) p[lane] = v[lane];
}

// What some instruction sets have instructions for that compilers do not find:
// stream          store past the caches, to a whole vector's boundary
// done_streaming  make such stores visible to other threads
// smaller, larger one instruction, where `a < b ? a : b` compiles to two
// quotient        a / b to within two units in the last place, for b of ordinary size
#if defined(__AVX512F__)
FILTERCOV_INLINE void stream(float* p, Vec v) { _mm512_stream_ps(p, v); }
FILTERCOV_INLINE void done_streaming() { _mm_sfence(); }
FILTERCOV_INLINE Vec smaller(Vec a, Vec b) { return _mm512_maskz_min_ps(0xFFFF, a, b); }
FILTERCOV_INLINE Vec larger(Vec a, Vec b) { return _mm512_maskz_max_ps(0xFFFF, a, b); }
FILTERCOV_INLINE Vec quotient(Vec a, Vec b) {
    // 14 bits, then one step of Newton's method: a third of a division's time.
    const Vec inverse = _mm512_maskz_rcp14_ps(0xFFFF, b), first = a * inverse;
    return first + inverse * (a - b * first);
}
#elif defined(__AVX2__)
FILTERCOV_INLINE void stream(float* p, Vec v) { _mm256_stream_ps(p, v); }
FILTERCOV_INLINE void done_streaming() { _mm_sfence(); }
FILTERCOV_INLINE Vec smaller(Vec a, Vec b) { return _mm256_min_ps(a, b); }
FILTERCOV_INLINE Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
FILTERCOV_INLINE Vec quotient(Vec a, Vec b) { return a / b; }
#else
FILTERCOV_INLINE void stream(float* p, Vec v) { store(p, v); }
FILTERCOV_INLINE void done_streaming() {}
FILTERCOV_INLINE Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
FILTERCOV_INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }
FILTERCOV_INLINE Vec quotient(Vec a, Vec b) { return a / b; }
#endif

// The sum of all lanes, in halves: the same order for every vector of this width.
FILTERCOV_INLINE float sum_of_lanes(Vec v) {
    for (int apart = kLanes / 2; apart > 0; apart /= 2) {
        for (int lane = 0; lane < apart; ++lane) v[lane] += v[lane + apart];
    }
    return v[0];
}

FILTERCOV_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
FILTERCOV_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
FILTERCOV_INLINE int64_t clamp(int64_t v, int64_t low, int64_t high) { return smaller(larger(v, low), high); }
FILTERCOV_INLINE int64_t round_up(int64_t count, int64_t step) { return ceil_div(count, step) * step; }

// Call f(Index<0>{}), f(Index<1>{}), ...: loops whose counter is a constant, so that arrays of Vec become registers.
template <int I> using Index = std::integral_constant<int, I>;

template <int I, int N, class F> FILTERCOV_INLINE void unroll_from(F&& f) {
    if constexpr (I < N) {
        f(Index<I>{});
        unroll_from<I + 1, N>(f);
    }
}

template <int N, class F> FILTERCOV_INLINE void unroll(F&& f) { unroll_from<0, N>(f); }

template <int... I> using Lanes = std::integer_sequence<int, I...>;

// The lanes of (a, b), b's counted on from a's, that `I` name.
template <int... I> FILTERCOV_INLINE Vec pick(Vec a, Vec b, Lanes<I...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, I...);
#else
    return __builtin_shuffle(a, b, IntVec{I...});
#endif
}

// Exchange the upper half of every 2 * Distance lanes of a with the lower half of b's.
template <int Distance, int... I> FILTERCOV_INLINE void exchange(Vec& a, Vec& b, Lanes<I...>) {
    const Vec lower = pick(a, b, Lanes<((I & Distance) ? I - Distance + kLanes : I)...>{});
    b = pick(a, b, Lanes<((I & Distance) ? I + kLanes : I + Distance)...>{});
    a = lower;
}

// Transpose a (kLanes, kLanes) matrix: exchange single lanes of neighbouring rows, then pairs of rows two apart, ...
template <int Distance = 1> FILTERCOV_INLINE void transpose(Vec (&rows)[kLanes]) {
    unroll<kLanes>([&](auto i) {
        constexpr int row = decltype(i)::value;
        if constexpr ((row & Distance) == 0) {
            exchange<Distance>(rows[row], rows[row + Distance], std::make_integer_sequence<int, kLanes>{});
        }
    });
    if constexpr (2 * Distance < kLanes) transpose<2 * Distance>(rows);
}
