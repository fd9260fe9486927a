//! Reads instructions.

use crate::lexer::{Word, Words};
use crate::op::{Binary, Clock, Combine, Compare, Compute, Convert, Guard, Half, Op, Relation};
use crate::op::{Source, Ternary, Unary};
use crate::types::{Kind, Type};
use crate::{ParseError, Refusal};

use super::body::Body;
use super::operands::{Fit, Operands};
use super::suffixes::Suffixes;

const NUMBERS: &[Kind] = &[Kind::Unsigned, Kind::Signed];
const SIGNED: &[Kind] = &[Kind::Signed];
const UNSIGNED: &[Kind] = &[Kind::Unsigned];
const BITS: &[Kind] = &[Kind::Bits];
const ANY: &[Kind] = &[Kind::Bits, Kind::Unsigned, Kind::Signed];
const LOGIC: &[Kind] = &[Kind::Bits, Kind::Predicate];
/// The sizes that arithmetic has.
const SIZES: &[u8] = &[2, 4, 8];

impl<'t> Body<'t> {
    /// Reads an instruction, its guard being read already.
    pub(super) fn instruction(
        &mut self,
        words: &mut Words<'t>,
        guard: Option<Guard>,
    ) -> Result<(), ParseError> {
        let mut suffixes = Suffixes::read(words)?;
        let s = &mut suffixes;
        match s.mnemonic {
            "bra" => {
                s.accept("uni");
                s.end()?;
                let line = words.line();
                let label = words.name("a label")?;
                self.push_branch(guard, label, line);
            }
            _ => {
                let op = if let Some(op) = self.plain(s)? {
                    op
                } else if s.mnemonic == "mov" {
                    self.mov(words, s)?
                } else if let Some(op) = self.memory(words, s)? {
                    op
                } else if let Some(op) = self.image(words, s)? {
                    op
                } else {
                    Op::Compute(self.compute(words, s)?)
                };
                self.push(guard, op);
            }
        }
        words.expect(';', "`;` behind the instruction")
    }

    /// The instruction requires this version of PTX and this target.
    pub(super) fn require(
        &self,
        s: &Suffixes<'t>,
        version: (u32, u32),
        target: u32,
    ) -> Result<(), ParseError> {
        if self.level.has(version, target) {
            return Ok(());
        }
        let instruction = s.text();
        Err(s.refuse(Refusal::Requires {
            instruction,
            version,
            target,
        }))
    }

    /// Instructions without operands.
    fn plain(&self, s: &mut Suffixes<'t>) -> Result<Option<Op>, ParseError> {
        let op = match s.mnemonic {
            "ret" => {
                s.accept("uni");
                Op::Exit
            }
            "exit" => Op::Exit,
            "trap" => Op::Trap,
            "membar" => {
                s.any(|name| matches!(name, "cta" | "gl" | "sys").then_some(()))?;
                Op::Fence
            }
            "fence" => {
                self.require(s, (6, 0), 70)?;
                s.accept_any(|name| matches!(name, "sc" | "acq_rel").then_some(()));
                s.any(|name| matches!(name, "cta" | "gpu" | "sys").then_some(()))?;
                Op::Fence
            }
            "griddepcontrol" => {
                self.require(s, (7, 8), 90)?;
                s.any(|name| match name {
                    "wait" => Some(Op::Wait),
                    "launch_dependents" => Some(Op::LaunchDependents),
                    _ => None,
                })?
            }
            _ => return Ok(None),
        };
        s.end()?;
        Ok(Some(op))
    }

    /// Instructions that read and write values of their thread only.
    fn compute(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        match s.mnemonic {
            "add" | "sub" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" => {
                self.binary(words, s)
            }
            "not" | "cnot" | "neg" | "abs" | "popc" | "clz" | "brev" => self.unary(words, s),
            "mul" | "mad" => self.product(words, s),
            "shl" | "shr" => self.shift(words, s),
            "setp" | "set" => self.compare(words, s),
            "cvta" => {
                s.accept("to");
                s.any(|name| (name == "global").then_some(()))?;
                let ty = s.ty(UNSIGNED, &[8])?;
                s.end()?;
                let mut o = Operands::new(words, self, s);
                Ok(Compute::Move {
                    d: o.d(ty)?,
                    a: o.a(ty)?,
                })
            }
            "cvt" => self.convert(words, s),
            "selp" => {
                let ty = s.ty(ANY, SIZES)?;
                s.end()?;
                let mut o = Operands::new(words, self, s);
                let (d, a, b) = (o.d(ty)?, o.a(ty)?, o.a(ty)?);
                let p = o.d(Type::PREDICATE)?;
                Ok(Compute::Select { d, a, b, p })
            }
            "sad" | "bfe" | "shf" | "lop3" | "prmt" => self.ternary(words, s),
            "bfi" => {
                let ty = s.ty(BITS, &[4, 8])?;
                s.end()?;
                let mut o = Operands::new(words, self, s);
                let (d, a, b) = (o.d(ty)?, o.a(ty)?, o.a(ty)?);
                let (pos, len) = (o.a(Type::U32)?, o.a(Type::U32)?);
                Ok(Compute::InsertBits {
                    ty,
                    d,
                    a,
                    b,
                    pos,
                    len,
                })
            }
            _ => Err(s.unsupported()),
        }
    }

    fn mov(&mut self, words: &mut Words<'t>, s: &mut Suffixes<'t>) -> Result<Op, ParseError> {
        let ty = s.any(|name| Type::named(name).filter(|ty| ty.is_predicate() || ty.bytes > 1))?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let d = o.d(ty)?;
        o.separate()?;
        if let Word::Name(name) = o.words.peek()
            && let Some((part, bytes)) = clock(name)
        {
            if ty.bytes != bytes || ty.is_predicate() {
                return Err(s.operand("the special register has another size"));
            }
            o.words.next();
            return Ok(Op::Clock { d, part });
        }
        let a = o.source_or_special_here(ty, Fit::Exact)?;
        Ok(Op::Compute(Compute::Move { d, a }))
    }

    fn binary(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let saturate = matches!(s.mnemonic, "add" | "sub") && s.accept("sat");
        let (op, kinds) = match (s.mnemonic, saturate) {
            ("add", false) => (Binary::Add, NUMBERS),
            ("add", true) => (Binary::AddSaturate, SIGNED),
            ("sub", false) => (Binary::Sub, NUMBERS),
            ("sub", true) => (Binary::SubSaturate, SIGNED),
            ("div", _) => (Binary::Div, NUMBERS),
            ("rem", _) => (Binary::Rem, NUMBERS),
            ("min", _) => (Binary::Min, NUMBERS),
            ("max", _) => (Binary::Max, NUMBERS),
            ("and", _) => (Binary::And, LOGIC),
            ("or", _) => (Binary::Or, LOGIC),
            ("xor", _) => (Binary::Xor, LOGIC),
            _ => return Err(s.unsupported()),
        };
        let sizes: &[u8] = match kinds {
            _ if saturate => &[4],
            LOGIC => &[1, 2, 4, 8],
            _ => SIZES,
        };
        let ty = s.ty(kinds, sizes)?;
        if ty.bytes == 1 && !ty.is_predicate() {
            return Err(s.unsupported());
        }
        s.end()?;
        let mut o = Operands::new(words, self, s);
        Ok(Compute::Binary {
            op,
            ty,
            d: o.d(ty)?,
            a: o.a(ty)?,
            b: o.a(ty)?,
        })
    }

    fn unary(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let (op, kinds, sizes): (_, _, &[u8]) = match s.mnemonic {
            "not" => (Unary::Not, LOGIC, &[1, 2, 4, 8]),
            "cnot" => (Unary::LogicalNot, BITS, SIZES),
            "neg" => (Unary::Negate, SIGNED, SIZES),
            "abs" => (Unary::Abs, SIGNED, SIZES),
            "popc" => (Unary::CountOnes, BITS, &[4, 8]),
            "clz" => (Unary::LeadingZeros, BITS, &[4, 8]),
            "brev" => (Unary::Reverse, BITS, &[4, 8]),
            _ => return Err(s.unsupported()),
        };
        let ty = s.ty(kinds, sizes)?;
        if ty.bytes == 1 && !ty.is_predicate() {
            return Err(s.unsupported());
        }
        s.end()?;
        let counts = matches!(op, Unary::CountOnes | Unary::LeadingZeros);
        let mut o = Operands::new(words, self, s);
        let d = o.d(if counts { Type::U32 } else { ty })?;
        Ok(Compute::Unary {
            op,
            ty,
            d,
            a: o.a(ty)?,
        })
    }

    /// `mul` is `mad` with zero.
    fn product(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let half = s.any(|name| match name {
            "lo" => Some(Half::Low),
            "hi" => Some(Half::High),
            "wide" => Some(Half::Wide),
            _ => None,
        })?;
        let wide = half == Half::Wide;
        let ty = s.ty(NUMBERS, if wide { &[2, 4] } else { SIZES })?;
        s.end()?;
        let sum = if wide { ty.wide() } else { ty };
        let mut o = Operands::new(words, self, s);
        let (d, a, b) = (o.d(sum)?, o.a(ty)?, o.a(ty)?);
        let c = match s.mnemonic {
            "mad" => o.a(sum)?,
            _ => self.fixed(Source::Constant(0), s.line)?,
        };
        Ok(Compute::Mad {
            half,
            ty,
            d,
            a,
            b,
            c,
        })
    }

    fn shift(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let left = s.mnemonic == "shl";
        let ty = s.ty(if left { BITS } else { ANY }, SIZES)?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        Ok(Compute::Shift {
            left,
            ty,
            d: o.d(ty)?,
            a: o.a(ty)?,
            b: o.a(Type::U32)?,
        })
    }

    fn compare(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let (relation, kinds): (_, &[Kind]) = s.any(|name| {
            Some(match name {
                "eq" => (Relation::Equal, ANY),
                "ne" => (Relation::NotEqual, ANY),
                "lt" => (Relation::Less, NUMBERS),
                "le" => (Relation::LessEqual, NUMBERS),
                "gt" => (Relation::Greater, NUMBERS),
                "ge" => (Relation::GreaterEqual, NUMBERS),
                "lo" => (Relation::Less, UNSIGNED),
                "ls" => (Relation::LessEqual, UNSIGNED),
                "hi" => (Relation::Greater, UNSIGNED),
                "hs" => (Relation::GreaterEqual, UNSIGNED),
                _ => return None,
            })
        })?;
        let combine = s.accept_any(|name| match name {
            "and" => Some(Combine::And),
            "or" => Some(Combine::Or),
            "xor" => Some(Combine::Xor),
            _ => None,
        });
        let predicate = s.mnemonic == "setp";
        let result = if predicate {
            Type::PREDICATE
        } else {
            s.ty(NUMBERS, &[4])?
        };
        let ty = s.ty(kinds, SIZES)?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let d = o.d(result)?;
        let opposite = if predicate && o.words.accept('|') {
            Some(o.register_here(Type::PREDICATE, Fit::Exact)?.0)
        } else {
            None
        };
        let (a, b) = (o.a(ty)?, o.a(ty)?);
        let combine = match combine {
            Some(combine) => {
                o.separate()?;
                Some((combine, self.guard(words)?))
            }
            None => None,
        };
        let truth = if predicate { 1 } else { u64::from(u32::MAX) };
        Ok(Compute::Compare(Compare {
            relation,
            ty,
            a,
            b,
            combine,
            d,
            opposite,
            truth,
        }))
    }

    fn convert(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let saturate = s.accept("sat");
        let to = s.ty(NUMBERS, &[1, 2, 4, 8])?;
        let from = s.ty(NUMBERS, &[1, 2, 4, 8])?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let (d, width) = o.register(to, Fit::Larger)?;
        let a = o.source_or_special(from, Fit::Larger)?;
        Ok(Compute::Convert(Convert {
            d,
            a,
            from,
            to,
            width,
            saturate,
        }))
    }

    /// Instructions with three sources.
    fn ternary(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Compute, ParseError> {
        let (ty, middle, last, mut op);
        match s.mnemonic {
            "sad" => {
                ty = s.ty(NUMBERS, SIZES)?;
                (middle, last, op) = (ty, ty, Ternary::AbsoluteDifference);
            }
            "bfe" => {
                ty = s.ty(NUMBERS, &[4, 8])?;
                (middle, last, op) = (Type::U32, Type::U32, Ternary::ExtractBits);
            }
            "shf" => {
                self.require(s, (3, 1), 32)?;
                let left = s.any(|name| match name {
                    "l" => Some(true),
                    "r" => Some(false),
                    _ => None,
                })?;
                let wrap = s.any(|name| match name {
                    "wrap" => Some(true),
                    "clamp" => Some(false),
                    _ => None,
                })?;
                ty = s.ty(BITS, &[4])?;
                (middle, last) = (ty, Type::U32);
                op = if left {
                    Ternary::FunnelLeft { wrap }
                } else {
                    Ternary::FunnelRight { wrap }
                };
            }
            "lop3" => {
                self.require(s, (4, 3), 50)?;
                ty = s.ty(BITS, &[4])?;
                (middle, last, op) = (ty, ty, Ternary::Lookup { table: 0 });
            }
            _ => {
                ty = s.ty(BITS, &[4])?;
                (middle, last, op) = (ty, ty, Ternary::Permute);
            }
        }
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let (d, a, b, c) = (o.d(ty)?, o.a(ty)?, o.a(middle)?, o.a(last)?);
        if let Ternary::Lookup { table } = &mut op {
            o.separate()?;
            let value = o.constant()?.and_then(|value| u8::try_from(value).ok());
            *table = value.ok_or_else(|| s.operand("the table is a constant from 0 to 255"))?;
        }
        Ok(Compute::Ternary { op, ty, d, a, b, c })
    }
}

/// A special register that shows the clock: the part, and the bytes of the register.
fn clock(name: &str) -> Option<(Clock, u8)> {
    Some(match name {
        "%globaltimer" | "%clock64" => (Clock::Whole, 8),
        "%globaltimer_lo" | "%clock" => (Clock::Low, 4),
        "%globaltimer_hi" | "%clock_hi" => (Clock::High, 4),
        _ => return None,
    })
}
