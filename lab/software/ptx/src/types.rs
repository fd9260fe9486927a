//! The types of PTX.

/// How the bits of a type are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bits,
    Unsigned,
    Signed,
    Predicate,
}

/// A type of a register, a parameter or an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) bytes: u8,
}

impl Type {
    pub(crate) const PREDICATE: Self = Self::new(Kind::Predicate, 1);
    pub(crate) const U32: Self = Self::new(Kind::Unsigned, 4);
    pub(crate) const U64: Self = Self::new(Kind::Unsigned, 8);

    const fn new(kind: Kind, bytes: u8) -> Self {
        Self { kind, bytes }
    }

    /// The type with this name, written without its dot.
    pub(crate) fn named(name: &str) -> Option<Self> {
        if name == "pred" {
            return Some(Self::PREDICATE);
        }
        let (kind, bits) = name.split_at_checked(1)?;
        let kind = match kind {
            "b" => Kind::Bits,
            "u" => Kind::Unsigned,
            "s" => Kind::Signed,
            _ => return None,
        };
        let bytes = match bits {
            "8" => 1,
            "16" => 2,
            "32" => 4,
            "64" => 8,
            _ => return None,
        };
        Some(Self::new(kind, bytes))
    }

    #[inline(always)]
    pub(crate) fn is_signed(self) -> bool {
        self.kind == Kind::Signed
    }

    #[inline(always)]
    pub(crate) fn is_predicate(self) -> bool {
        self.kind == Kind::Predicate
    }

    /// The type of twice the size.
    pub(crate) const fn wide(self) -> Self {
        Self::new(self.kind, self.bytes * 2)
    }

    /// The low bits of `value` that the type has room for. Of a predicate: whether it is not zero.
    pub(crate) fn truncate(self, value: u64) -> u64 {
        if self.is_predicate() {
            u64::from(value != 0)
        } else {
            extend(value, self.bytes, false)
        }
    }
}

/// Extends the low `bytes` of `value` to 64 bits. `bytes` is 1, 2, 4 or 8.
#[inline(always)]
pub(crate) const fn extend(value: u64, bytes: u8, signed: bool) -> u64 {
    let unused = 64 - 8 * bytes as u32;
    let high = value << unused;
    if signed {
        (high.cast_signed() >> unused).cast_unsigned()
    } else {
        high >> unused
    }
}
