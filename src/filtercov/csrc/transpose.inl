// kLanes vectors of kLanes numbers turned so that rows become columns: how channels-first tensors enter and leave tiles.

template <int... I>
struct Lanes {};

template <int N, int... I>
struct CountLanes : CountLanes<N - 1, N - 1, I...> {};

template <int... I>
struct CountLanes<0, I...> {
    using type = Lanes<I...>;
};

// The lanes of (a, b), b's counted on from a's, that `I` name.
template <int... I>
FILTERCOV_INLINE Vec pick(Vec a, Vec b, Lanes<I...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, I...);
#else
    return __builtin_shuffle(a, b, IntVec{I...});
#endif
}

// Exchange the upper half of every 2 * Distance lanes of a with the lower half of b's.
template <int Distance, int... I>
FILTERCOV_INLINE void exchange(Vec& a, Vec& b, Lanes<I...>) {
    const Vec lower = pick(a, b, Lanes<((I & Distance) ? I - Distance + kLanes : I)...>{});
    b = pick(a, b, Lanes<((I & Distance) ? I + kLanes : I + Distance)...>{});
    a = lower;
}

template <int Distance>
FILTERCOV_INLINE void exchange_all(Vec (&rows)[kLanes]) {
    unroll<kLanes>([&](auto i) {
        constexpr int row = decltype(i)::value;
        if constexpr ((row & Distance) == 0) {
            exchange<Distance>(rows[row], rows[row + Distance], typename CountLanes<kLanes>::type{});
        }
    });
    if constexpr (2 * Distance < kLanes) exchange_all<2 * Distance>(rows);
}

FILTERCOV_INLINE void transpose(Vec (&rows)[kLanes]) { exchange_all<1>(rows); }
