//! Reads the operands of an instruction.

use crate::ParseError;
use crate::lexer::{Word, Words};
use crate::op::{Address, Slot, Source, Special};
use crate::types::{Kind, Type};

use super::body::Body;
use super::suffixes::Suffixes;

/// How the size of a register relates to the type of the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Exact,
    /// The register may be larger: loads, stores and conversions.
    Larger,
    /// The register has no sign: it receives a floating-point number.
    Bits,
}

/// The operands of one instruction.
pub(super) struct Operands<'a, 't> {
    pub(super) words: &'a mut Words<'t>,
    pub(super) body: &'a mut Body<'t>,
    suffixes: &'a Suffixes<'t>,
    /// Whether an operand was read.
    some: bool,
}

impl<'a, 't> Operands<'a, 't> {
    pub(super) fn new(
        words: &'a mut Words<'t>,
        body: &'a mut Body<'t>,
        suffixes: &'a Suffixes<'t>,
    ) -> Self {
        Self {
            words,
            body,
            suffixes,
            some: false,
        }
    }

    pub(super) fn refuse_operand(&self, reason: &'static str) -> ParseError {
        self.suffixes.operand(reason)
    }

    /// The comma before every operand but the first.
    pub(super) fn separate(&mut self) -> Result<(), ParseError> {
        if self.some {
            self.words.expect(',', "`,`")?;
        }
        self.some = true;
        Ok(())
    }

    /// A register of this type: its slot and its bytes.
    pub(super) fn register(&mut self, ty: Type, fit: Fit) -> Result<(Slot, u8), ParseError> {
        self.separate()?;
        self.register_here(ty, fit)
    }

    pub(super) fn register_here(&mut self, ty: Type, fit: Fit) -> Result<(Slot, u8), ParseError> {
        let line = self.words.line();
        let name = self.words.name("a register")?;
        let (slot, found) = self.body.register(name, line)?;
        let fits = match fit {
            Fit::Exact => found.bytes == ty.bytes,
            Fit::Larger => found.bytes >= ty.bytes,
            Fit::Bits => found.bytes == ty.bytes && found.kind == Kind::Bits,
        };
        if fits && found.is_predicate() == ty.is_predicate() {
            Ok((slot, found.bytes))
        } else {
            Err(self
                .suffixes
                .operand("the size or the type of a register does not fit the instruction"))
        }
    }

    /// A register of exactly this type.
    pub(super) fn d(&mut self, ty: Type) -> Result<Slot, ParseError> {
        Ok(self.register(ty, Fit::Exact)?.0)
    }

    /// A register of exactly this type, or `_` for a result that is not needed.
    pub(super) fn d_or_sink(&mut self, ty: Type) -> Result<Option<Slot>, ParseError> {
        self.separate()?;
        if self.words.peek() == Word::Name("_") {
            self.words.next();
            return Ok(None);
        }
        Ok(Some(self.register_here(ty, Fit::Exact)?.0))
    }

    /// A register or a constant.
    pub(super) fn a(&mut self, ty: Type) -> Result<Slot, ParseError> {
        self.source(ty, Fit::Exact)
    }

    pub(super) fn source(&mut self, ty: Type, fit: Fit) -> Result<Slot, ParseError> {
        self.separate()?;
        self.source_here(ty, fit)
    }

    pub(super) fn source_here(&mut self, ty: Type, fit: Fit) -> Result<Slot, ParseError> {
        match self.constant()? {
            Some(value) => {
                let source = Source::Constant(ty.truncate(value));
                self.body.fixed(source, self.suffixes.line)
            }
            None => Ok(self.register_here(ty, fit)?.0),
        }
    }

    /// A register, a constant or a special register that does not change.
    pub(super) fn source_or_special(&mut self, ty: Type, fit: Fit) -> Result<Slot, ParseError> {
        self.separate()?;
        self.source_or_special_here(ty, fit)
    }

    pub(super) fn source_or_special_here(
        &mut self,
        ty: Type,
        fit: Fit,
    ) -> Result<Slot, ParseError> {
        let Some(special) = self.special() else {
            return self.source_here(ty, fit);
        };
        if ty.bytes == 4 || fit == Fit::Larger && ty.bytes < 4 {
            self.body
                .fixed(Source::Special(special), self.suffixes.line)
        } else {
            Err(self
                .suffixes
                .operand("the special register has another size"))
        }
    }

    /// An integer with or without `-`, or `WARP_SZ`. None if the next word is something else.
    pub(super) fn constant(&mut self) -> Result<Option<u64>, ParseError> {
        let negative = self.words.accept('-');
        match self.words.peek() {
            Word::Integer(value) => {
                self.words.next();
                Ok(Some(if negative {
                    value.wrapping_neg()
                } else {
                    value
                }))
            }
            Word::Name("WARP_SZ") if !negative => {
                self.words.next();
                Ok(Some(32))
            }
            _ if negative => Err(self.words.unexpected("an integer")),
            _ => Ok(None),
        }
    }

    /// The offset behind the base of an address: `+4`, `+-4` or none. Then `]`. NVIDIA's driver
    /// refuses `-4`.
    pub(super) fn offset(&mut self) -> Result<i64, ParseError> {
        let mut offset = 0;
        if self.words.accept('+') {
            let minus = self.words.accept('-');
            let value = self.words.integer("an offset")?;
            let value = i32::try_from(value).map_err(|_| {
                self.suffixes
                    .operand("the offset of an address has more than 32 bits")
            })?;
            offset = i64::from(if minus { -value } else { value });
        }
        self.words.expect(']', "`]`")?;
        Ok(offset)
    }

    /// An address in global memory. NVIDIA's driver refuses a constant as its base.
    pub(super) fn address(&mut self) -> Result<Address, ParseError> {
        self.separate()?;
        self.words.expect('[', "`[`")?;
        let base = self.register_here(Type::U64, Fit::Exact)?.0;
        let offset = self.offset()?;
        Ok(Address { base, offset })
    }

    /// A special register that does not change, with its dimension.
    fn special(&mut self) -> Option<Special> {
        let Word::Name(name) = self.words.peek() else {
            return None;
        };
        let vector: fn(u8) -> Special = match name {
            "%tid" => Special::Tid,
            "%ntid" => Special::Ntid,
            "%ctaid" => Special::Ctaid,
            "%nctaid" => Special::Nctaid,
            _ => {
                let special = match name {
                    "%laneid" => Special::LaneId,
                    "%warpid" => Special::WarpId,
                    "%nwarpid" => Special::WarpCount,
                    _ => return None,
                };
                self.words.next();
                return Some(special);
            }
        };
        let dimension = match self.words.peek_second() {
            Word::Dot("x") => 0,
            Word::Dot("y") => 1,
            Word::Dot("z") => 2,
            _ => return None,
        };
        self.words.next();
        self.words.next();
        Some(vector(dimension))
    }
}
