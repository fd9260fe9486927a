//! The integer types of PTX as Rust's.

/// An integer type of PTX that arithmetic has.
pub(super) trait Int: Copy + Ord {
    const BITS: u32;
    /// The low bits of `value`.
    fn of(value: u64) -> Self;
    /// The bits of the value, with zero above.
    fn bits(self) -> u64;
    fn add(self, other: Self) -> Self;
    fn add_saturate(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn sub_saturate(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The high half of the product.
    fn mul_high(self, other: Self) -> Self;
    /// The bits of the product, for types of up to 32 bits.
    fn mul_wide(self, other: Self) -> u64;
    /// The quotient, or all ones for a division by zero.
    fn div(self, other: Self) -> Self;
    /// The remainder, or all ones for a division by zero.
    fn rem(self, other: Self) -> Self;
    fn abs(self) -> Self;
    fn abs_difference(self, other: Self) -> Self;
    /// Shifts left by any number of bits.
    fn shift_left(self, by: u32) -> Self;
    /// Shifts right by any number of bits. Signed types repeat the sign.
    fn shift_right(self, by: u32) -> Self;
}

macro_rules! int {
    ($($ty:ident $unsigned:ident $wide:ident;)*) => {$(
        impl Int for $ty {
            const BITS: u32 = $ty::BITS;

            #[inline(always)]
            fn of(value: u64) -> Self {
                value as $ty
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                self as $unsigned as u64
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn add_saturate(self, other: Self) -> Self {
                self.saturating_add(other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn sub_saturate(self, other: Self) -> Self {
                self.saturating_sub(other)
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((self as $wide).wrapping_mul(other as $wide) >> $ty::BITS) as $ty
            }

            #[inline(always)]
            fn mul_wide(self, other: Self) -> u64 {
                (self as $wide).wrapping_mul(other as $wide) as u64
            }

            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }

            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }

            #[inline(always)]
            #[allow(unused_comparisons, reason = "one macro for signed and unsigned types")]
            fn abs(self) -> Self {
                if self < 0 { (0 as $ty).wrapping_sub(self) } else { self }
            }

            #[inline(always)]
            fn abs_difference(self, other: Self) -> Self {
                self.abs_diff(other) as $ty
            }

            #[inline(always)]
            fn shift_left(self, by: u32) -> Self {
                if by < $ty::BITS { self << by } else { 0 }
            }

            #[inline(always)]
            fn shift_right(self, by: u32) -> Self {
                if by < $ty::BITS {
                    self >> by
                } else {
                    // Zero, or all ones for a negative value.
                    self >> ($ty::BITS - 1) >> 1
                }
            }
        }
    )*};
}

int! {
    u16 u16 u32;
    i16 u16 i32;
    u32 u32 u64;
    i32 u32 i64;
    u64 u64 u128;
    i64 u64 i128;
}
