//! Instructions as the interpreter runs them.

use crate::Geometry;
use crate::types::Type;

/// The place of a value of a thread: a register, a constant, a parameter or a special register.
pub(crate) type Slot = u16;

/// What a slot holds when a thread begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// A register, zero at first.
    Register,
    Constant(u64),
    /// Bytes of the parameters, extended to a register of `width` bytes.
    Param {
        offset: u16,
        bytes: u8,
        signed: bool,
        width: u8,
    },
    Special(Special),
}

/// A special register that a thread cannot see change. The numbers are dimensions: x, y, z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    WarpCount,
}

/// A part of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Whole,
    Low,
    High,
}

/// An instruction with the predicate that guards it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    pub(crate) guard: Option<Guard>,
    pub(crate) op: Op,
}

/// A predicate, and whether its opposite is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guard {
    pub(crate) slot: Slot,
    pub(crate) negated: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Compute(Compute),
    Load {
        d: Slot,
        at: Address,
        ty: Type,
        /// The bytes of the register.
        width: u8,
        acquire: bool,
    },
    Store {
        at: Address,
        a: Slot,
        bytes: u8,
        release: bool,
    },
    Atomic {
        op: Atomic,
        ty: Type,
        /// Absent for `red`.
        d: Option<Slot>,
        at: Address,
        a: Slot,
        b: Slot,
    },
    Surface(Surface),
    Texel(Texel),
    Clock {
        d: Slot,
        part: Clock,
    },
    Branch {
        target: u32,
    },
    Exit,
    Trap,
    Fence,
    Pause,
    LaunchDependents,
    Wait,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) base: Slot,
    pub(crate) offset: i64,
}

/// `suld.b` and `sust.b`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surface {
    pub(crate) write: bool,
    pub(crate) object: Slot,
    pub(crate) geometry: Geometry,
    /// x, in bytes, y and z.
    pub(crate) at: [Slot; 3],
    /// The first `count` of them are read or written.
    pub(crate) data: [Slot; 4],
    pub(crate) count: u8,
    /// The bytes of each value.
    pub(crate) bytes: u8,
    pub(crate) clamp: Clamp,
}

/// What an access outside of a surface does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clamp {
    Trap,
    /// Accesses the nearest place.
    Nearest,
    /// Loads zero, and stores nothing.
    Zero,
}

/// `tex` with coordinates that are integers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texel {
    pub(crate) object: Slot,
    pub(crate) geometry: Geometry,
    pub(crate) at: [Slot; 3],
    /// Absent for level 0.
    pub(crate) level: Option<Slot>,
    pub(crate) d: [Slot; 4],
}

/// An instruction that reads and writes values of its thread only.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Compute {
    Move {
        d: Slot,
        a: Slot,
    },
    Convert(Convert),
    Unary {
        op: Unary,
        ty: Type,
        d: Slot,
        a: Slot,
    },
    Binary {
        op: Binary,
        ty: Type,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// `b` is a number of 32 bits for every type.
    Shift {
        left: bool,
        ty: Type,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// Multiplies and adds. The product is `Half` of the whole product.
    Mad {
        half: Half,
        ty: Type,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Select {
        d: Slot,
        a: Slot,
        b: Slot,
        p: Slot,
    },
    Compare(Compare),
    Ternary {
        op: Ternary,
        ty: Type,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// Inserts the low `len` bits of `a` into `b` at `pos`.
    InsertBits {
        ty: Type,
        d: Slot,
        a: Slot,
        b: Slot,
        pos: Slot,
        len: Slot,
    },
}

/// `cvt`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Convert {
    pub(crate) d: Slot,
    pub(crate) a: Slot,
    pub(crate) from: Type,
    pub(crate) to: Type,
    /// The bytes of the destination register.
    pub(crate) width: u8,
    pub(crate) saturate: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    /// Whether the value is zero.
    LogicalNot,
    Negate,
    Abs,
    CountOnes,
    LeadingZeros,
    Reverse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    AddSaturate,
    Sub,
    SubSaturate,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ternary {
    /// Bits of `a`, from bit `b`, `c` of them.
    ExtractBits,
    /// The absolute difference of `a` and `b`, plus `c`.
    AbsoluteDifference,
    /// The high word of `b:a`, shifted left by `c`.
    FunnelLeft { wrap: bool },
    /// The low word of `b:a`, shifted right by `c`.
    FunnelRight { wrap: bool },
    /// A table of three inputs.
    Lookup { table: u8 },
    /// Bytes of `b:a` as `c` selects.
    Permute,
}

/// Which half of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Low,
    High,
    /// Both halves, in a register of twice the size.
    Wide,
}

/// `setp` and `set`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compare {
    pub(crate) relation: Relation,
    pub(crate) ty: Type,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    /// Combines the result with a predicate.
    pub(crate) combine: Option<(Combine, Guard)>,
    pub(crate) d: Slot,
    /// `setp` only: receives the combination of the opposite result.
    pub(crate) opposite: Option<Slot>,
    /// What the destination receives for true.
    pub(crate) truth: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Atomic {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareExchange,
    Increment,
    Decrement,
}
