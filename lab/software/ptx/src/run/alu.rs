//! Instructions that read and write values of their thread only.

use crate::op::{Binary, Combine, Compare, Compute, Convert, Half, Relation, Slot, Ternary, Unary};
use crate::types::{Type, extend};

use super::int::Int;
use super::rows::{Mask, Row, Rows};

/// Calls a function with the Rust type for a type of PTX. The reader refuses all other types.
macro_rules! with_int {
    ($ty:expr, $function:ident($($argument:expr),*)) => {
        match ($ty.is_signed(), $ty.bytes) {
            (false, 2) => $function::<u16, W>($($argument),*),
            (true, 2) => $function::<i16, W>($($argument),*),
            (false, 4) => $function::<u32, W>($($argument),*),
            (true, 4) => $function::<i32, W>($($argument),*),
            (true, _) => $function::<i64, W>($($argument),*),
            (false, _) => $function::<u64, W>($($argument),*),
        }
    };
}

/// Executes an instruction in the lanes of `mask`.
pub(super) fn compute<const W: usize>(rows: &mut Rows<W>, mask: &Mask<W>, compute: Compute) {
    match compute {
        Compute::Move { d, a } => {
            let values = *rows.row(a);
            rows.put(d, &values, mask);
        }
        Compute::Convert(op) => convert(rows, mask, op),
        Compute::Unary { op, ty, d, a } if ty.is_predicate() => {
            debug_assert_eq!(op, Unary::Not);
            map(rows, mask, d, a, |a| a ^ 1);
        }
        Compute::Unary { op, ty, d, a } => with_int!(ty, unary(rows, mask, op, d, a)),
        // Predicates are 0 or 1, so any type does for `and`, `or` and `xor`.
        Compute::Binary { op, ty, d, a, b } => with_int!(ty, binary(rows, mask, op, d, a, b)),
        Compute::Shift { left, ty, d, a, b } => with_int!(ty, shift(rows, mask, left, d, a, b)),
        Compute::Mad {
            half,
            ty,
            d,
            a,
            b,
            c,
        } => {
            with_int!(ty, mad(rows, mask, half, d, [a, b, c]));
        }
        Compute::Select { d, a, b, p } => {
            map3(rows, mask, d, [a, b, p], |a, b, p| {
                let chosen = p.wrapping_neg();
                a & chosen | b & !chosen
            });
        }
        Compute::Compare(op) => with_int!(op.ty, compare(rows, mask, op)),
        Compute::Ternary { op, ty, d, a, b, c } => {
            with_int!(ty, ternary(rows, mask, op, d, [a, b, c]));
        }
        Compute::InsertBits {
            ty,
            d,
            a,
            b,
            pos,
            len,
        } => {
            let (pos, len) = (*rows.row(pos), *rows.row(len));
            let (a, b) = (rows.row(a), rows.row(b));
            let mut values = [0; W];
            for lane in 0..W {
                let field = field(pos[lane], len[lane], ty);
                let moved = a[lane].shift_left((pos[lane] & 0xff) as u32);
                values[lane] = moved & field | b[lane] & !field;
            }
            rows.put(d, &values, mask);
        }
    }
}

#[inline(always)]
fn map<const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    d: Slot,
    a: Slot,
    f: impl Fn(u64) -> u64,
) {
    let a = rows.row(a);
    let mut values = [0; W];
    for lane in 0..W {
        values[lane] = f(a[lane]);
    }
    rows.put(d, &values, mask);
}

#[inline(always)]
fn map2<const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    d: Slot,
    [a, b]: [Slot; 2],
    f: impl Fn(u64, u64) -> u64,
) {
    let (a, b) = (rows.row(a), rows.row(b));
    let mut values = [0; W];
    for lane in 0..W {
        values[lane] = f(a[lane], b[lane]);
    }
    rows.put(d, &values, mask);
}

#[inline(always)]
fn map3<const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    d: Slot,
    [a, b, c]: [Slot; 3],
    f: impl Fn(u64, u64, u64) -> u64,
) {
    let (a, b, c) = (rows.row(a), rows.row(b), rows.row(c));
    let mut values = [0; W];
    for lane in 0..W {
        values[lane] = f(a[lane], b[lane], c[lane]);
    }
    rows.put(d, &values, mask);
}

fn unary<T: Int, const W: usize>(rows: &mut Rows<W>, mask: &Mask<W>, op: Unary, d: Slot, a: Slot) {
    match op {
        Unary::Not => map(rows, mask, d, a, |a| T::of(!a).bits()),
        Unary::LogicalNot => map(rows, mask, d, a, |a| u64::from(a == 0)),
        Unary::Negate => map(rows, mask, d, a, |a| T::of(0).sub(T::of(a)).bits()),
        Unary::Abs => map(rows, mask, d, a, |a| T::of(a).abs().bits()),
        Unary::CountOnes => map(rows, mask, d, a, |a| u64::from(a.count_ones())),
        Unary::LeadingZeros => map(rows, mask, d, a, |a| {
            u64::from(a.leading_zeros() - (u64::BITS - T::BITS))
        }),
        Unary::Reverse => map(rows, mask, d, a, |a| {
            a.reverse_bits() >> (u64::BITS - T::BITS)
        }),
    }
}

fn binary<T: Int, const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    op: Binary,
    d: Slot,
    a: Slot,
    b: Slot,
) {
    let from = [a, b];
    macro_rules! with {
        ($f:expr) => {
            map2(rows, mask, d, from, |a, b| $f(T::of(a), T::of(b)).bits())
        };
    }
    match op {
        Binary::Add => with!(T::add),
        Binary::AddSaturate => with!(T::add_saturate),
        Binary::Sub => with!(T::sub),
        Binary::SubSaturate => with!(T::sub_saturate),
        Binary::Div => with!(T::div),
        Binary::Rem => with!(T::rem),
        Binary::Min => with!(T::min),
        Binary::Max => with!(T::max),
        Binary::And => map2(rows, mask, d, from, |a, b| a & b),
        Binary::Or => map2(rows, mask, d, from, |a, b| a | b),
        Binary::Xor => map2(rows, mask, d, from, |a, b| a ^ b),
    }
}

fn shift<T: Int, const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    left: bool,
    d: Slot,
    a: Slot,
    b: Slot,
) {
    if left {
        map2(rows, mask, d, [a, b], |a, b| {
            T::of(a).shift_left(b as u32).bits()
        });
    } else {
        map2(rows, mask, d, [a, b], |a, b| {
            T::of(a).shift_right(b as u32).bits()
        });
    }
}

fn mad<T: Int, const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    half: Half,
    d: Slot,
    from: [Slot; 3],
) {
    match half {
        Half::Low => map3(rows, mask, d, from, |a, b, c| {
            T::of(a).mul(T::of(b)).add(T::of(c)).bits()
        }),
        Half::High => map3(rows, mask, d, from, |a, b, c| {
            T::of(a).mul_high(T::of(b)).add(T::of(c)).bits()
        }),
        Half::Wide => {
            let unused = u64::BITS - 2 * T::BITS.min(32);
            map3(rows, mask, d, from, |a, b, c| {
                T::of(a).mul_wide(T::of(b)).wrapping_add(c) << unused >> unused
            });
        }
    }
}

fn compare<T: Int, const W: usize>(rows: &mut Rows<W>, mask: &Mask<W>, op: Compare) {
    let (a, b) = (rows.row(op.a), rows.row(op.b));
    let mut held = [0; W];
    macro_rules! with {
        ($f:expr) => {
            for lane in 0..W {
                held[lane] = u64::from($f(&T::of(a[lane]), &T::of(b[lane])));
            }
        };
    }
    match op.relation {
        Relation::Equal => with!(T::eq),
        Relation::NotEqual => with!(T::ne),
        Relation::Less => with!(T::lt),
        Relation::LessEqual => with!(T::le),
        Relation::Greater => with!(T::gt),
        Relation::GreaterEqual => with!(T::ge),
    }
    let mut opposite: Row<W> = held.map(|held| held ^ 1);
    if let Some((combine, with)) = op.combine {
        let row = rows.row(with.slot);
        let negated = u64::from(with.negated);
        for lane in 0..W {
            let with = row[lane] ^ negated;
            for value in [&mut held[lane], &mut opposite[lane]] {
                *value = match combine {
                    Combine::And => *value & with,
                    Combine::Or => *value | with,
                    Combine::Xor => *value ^ with,
                };
            }
        }
    }
    let values = held.map(|held| held.wrapping_neg() & op.truth);
    rows.put(op.d, &values, mask);
    if let Some(d) = op.opposite {
        rows.put(d, &opposite, mask);
    }
}

fn convert<const W: usize>(rows: &mut Rows<W>, mask: &Mask<W>, op: Convert) {
    let Convert {
        d,
        a,
        from,
        to,
        width,
        saturate,
    } = op;
    if saturate {
        map(rows, mask, d, a, |a| clamp(a, from, to, width));
    } else {
        map(rows, mask, d, a, |a| {
            let value = extend(a, from.bytes, from.is_signed());
            extend(extend(value, to.bytes, to.is_signed()), width, false)
        });
    }
}

/// Converts to the nearest value that the type has.
fn clamp(a: u64, from: Type, to: Type, width: u8) -> u64 {
    let value = extend(a, from.bytes, from.is_signed());
    let value = if from.is_signed() {
        i128::from(value.cast_signed())
    } else {
        i128::from(value)
    };
    let bits = 8 * u32::from(to.bytes);
    let (low, high) = if to.is_signed() {
        (-1 << (bits - 1), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    };
    extend(value.clamp(low, high) as u64, width, false)
}

fn ternary<T: Int, const W: usize>(
    rows: &mut Rows<W>,
    mask: &Mask<W>,
    op: Ternary,
    d: Slot,
    from: [Slot; 3],
) {
    match op {
        Ternary::ExtractBits => map3(rows, mask, d, from, extract::<T>),
        Ternary::AbsoluteDifference => map3(rows, mask, d, from, |a, b, c| {
            T::of(a).abs_difference(T::of(b)).add(T::of(c)).bits()
        }),
        Ternary::FunnelLeft { wrap } => map3(rows, mask, d, from, |a, b, c| {
            let by = if wrap { c & 31 } else { c.min(32) };
            (b << 32 | a) << by >> 32
        }),
        Ternary::FunnelRight { wrap } => map3(rows, mask, d, from, |a, b, c| {
            let by = if wrap { c & 31 } else { c.min(32) };
            (b << 32 | a) >> by & 0xffff_ffff
        }),
        Ternary::Lookup { table } => map3(rows, mask, d, from, |a, b, c| lookup(table, a, b, c)),
        Ternary::Permute => map3(rows, mask, d, from, permute),
    }
}

/// Ones for `len` bits from bit `pos`, as far as the type has them.
fn field(pos: u64, len: u64, ty: Type) -> u64 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    ty.truncate((!u64::MAX.shift_left(len)).shift_left(pos))
}

/// `bfe`: the field at bit `pos` with `len` bits. Signed types repeat its highest bit.
fn extract<T: Int>(a: u64, pos: u64, len: u64) -> u64 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    let field = !u64::MAX.shift_left(len);
    let shifted = T::of(a).bits().shift_right(pos);
    let is_signed = T::of(u64::MAX) < T::of(0);
    let highest = (pos + len).saturating_sub(1).min(T::BITS - 1);
    let negative = is_signed && len > 0 && a >> highest & 1 == 1;
    let in_type = !u64::MAX.shift_left(T::BITS.saturating_sub(pos));
    let value = shifted & field & in_type;
    if negative {
        T::of(value | !(field & in_type)).bits()
    } else {
        value
    }
}

/// `lop3`: for each bit, the bit of the table that the bits of `a`, `b` and `c` number.
fn lookup(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let mut value = 0;
    for index in 0..8_u64 {
        let of = |word: u64, bit: u64| if index >> bit & 1 == 1 { word } else { !word };
        if table >> index & 1 == 1 {
            value |= of(a, 2) & of(b, 1) & of(c, 0);
        }
    }
    value & 0xffff_ffff
}

/// `prmt`: four bytes of `b:a`. Bit 3 of a selector repeats the sign of the byte.
fn permute(a: u64, b: u64, selectors: u64) -> u64 {
    let bytes = b << 32 | a;
    (0..4).fold(0, |value, index| {
        let selector = selectors >> (4 * index);
        let byte = bytes >> (8 * (selector & 7)) & 0xff;
        let byte = if selector & 8 == 0 {
            byte
        } else {
            (byte >> 7) * 0xff
        };
        value | byte << (8 * index)
    })
}
