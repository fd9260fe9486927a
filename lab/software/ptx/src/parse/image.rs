//! Reads instructions that access surfaces and textures.

use crate::lexer::{Word, Words};
use crate::op::{Clamp, Op, Slot, Source, Surface, Texel};
use crate::types::{Kind, Type};
use crate::{Geometry, ParseError};

use super::body::Body;
use super::operands::{Fit, Operands};
use super::suffixes::Suffixes;

/// The most bytes of an access.
const MAX_BYTES: u8 = 16;

impl<'t> Body<'t> {
    pub(super) fn image(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Option<Op>, ParseError> {
        match s.mnemonic {
            "suld" | "sust" => self.surface(words, s).map(Some),
            "tex" => self.texel(words, s).map(Some),
            _ => Ok(None),
        }
    }

    fn surface(&mut self, words: &mut Words<'t>, s: &mut Suffixes<'t>) -> Result<Op, ParseError> {
        let write = s.mnemonic == "sust";
        s.any(|name| (name == "b").then_some(()))?;
        let geometry = s.any(geometry)?;
        s.accept_any(|name| match name {
            "wb" | "wt" => write.then_some(()),
            "ca" | "cv" => (!write).then_some(()),
            "cg" | "cs" => Some(()),
            _ => None,
        });
        let count = s.accept_any(|name| match name {
            "v2" => Some(2),
            "v4" => Some(4),
            _ => None,
        });
        let count = count.unwrap_or(1);
        let ty = s.ty(&[Kind::Bits], &[1, 2, 4, 8])?;
        if ty.bytes * count > MAX_BYTES {
            return Err(s.unsupported());
        }
        let clamp = s.any(|name| match name {
            "trap" => Some(Clamp::Trap),
            "clamp" => Some(Clamp::Nearest),
            "zero" => Some(Clamp::Zero),
            _ => None,
        })?;
        s.end()?;
        self.require(s, (3, 1), 20)?;
        let mut o = Operands::new(words, self, s);
        let (data, object, at);
        if write {
            (object, at) = o.image(geometry)?;
            data = o.vector(count, |o| o.source_here(ty, Fit::Larger))?;
        } else {
            data = o.vector(count, |o| Ok(o.register_here(ty, Fit::Larger)?.0))?;
            (object, at) = o.image(geometry)?;
        }
        Ok(Op::Surface(Surface {
            write,
            object,
            geometry,
            at,
            data,
            count,
            bytes: ty.bytes,
            clamp,
        }))
    }

    fn texel(&mut self, words: &mut Words<'t>, s: &mut Suffixes<'t>) -> Result<Op, ParseError> {
        let has_level = s.accept("level");
        if !has_level {
            s.accept("base");
        }
        let geometry = s.any(geometry)?;
        s.any(|name| (name == "v4").then_some(()))?;
        let fit = s.any(|name| match name {
            "u32" | "s32" => Some(Fit::Exact),
            "f32" => Some(Fit::Bits),
            _ => None,
        })?;
        s.any(|name| (name == "s32").then_some(()))?;
        s.end()?;
        self.require(s, (3, 1), 20)?;
        let mut o = Operands::new(words, self, s);
        let d = o.vector(4, |o| Ok(o.register_here(Type::U32, fit)?.0))?;
        if o.words.peek() == Word::Sign('|') {
            return Err(o.refuse_operand("the predicate of residency is not supported"));
        }
        let (object, at) = o.image(geometry)?;
        let level = if has_level {
            Some(o.a(Type::U32)?)
        } else {
            None
        };
        if o.words.peek() == Word::Sign(',') {
            return Err(o.refuse_operand("offsets and depth comparisons are not supported"));
        }
        Ok(Op::Texel(Texel {
            object,
            geometry,
            at,
            level,
            d,
        }))
    }
}

fn geometry(name: &str) -> Option<Geometry> {
    Some(match name {
        "1d" => Geometry::Row,
        "2d" => Geometry::Plane,
        "3d" => Geometry::Volume,
        "a1d" => Geometry::Rows,
        "a2d" => Geometry::Planes,
        _ => return None,
    })
}

impl Operands<'_, '_> {
    fn zero(&mut self) -> Result<Slot, ParseError> {
        let line = self.words.line();
        self.body.fixed(Source::Constant(0), line)
    }

    /// `[%d0, {%r0, %r1}]`: an object, and x, y and z of a place.
    fn image(&mut self, geometry: Geometry) -> Result<(Slot, [Slot; 3]), ParseError> {
        self.separate()?;
        self.words.expect('[', "`[`")?;
        let object = self.register_here(Type::U64, Fit::Exact)?.0;
        let count = match geometry {
            Geometry::Row => 1,
            Geometry::Plane | Geometry::Rows => 2,
            // The last one is ignored.
            Geometry::Volume | Geometry::Planes => 4,
        };
        self.separate()?;
        let is_name = matches!(self.words.peek(), Word::Name(_));
        if is_name && self.words.peek_second() == Word::Sign(',') {
            return Err(self.refuse_operand("a sampler beside the texture is not supported"));
        }
        let [a, b, c, _] = self.vector_here(count, |o| o.source_here(Type::U32, Fit::Exact))?;
        self.words.expect(']', "`]`")?;
        let zero = self.zero()?;
        let at = match geometry {
            Geometry::Row => [a, zero, zero],
            Geometry::Plane => [a, b, zero],
            Geometry::Volume => [a, b, c],
            Geometry::Rows => [b, zero, a],
            Geometry::Planes => [b, c, a],
        };
        Ok((object, at))
    }

    fn vector(
        &mut self,
        count: u8,
        each: impl FnMut(&mut Self) -> Result<Slot, ParseError>,
    ) -> Result<[Slot; 4], ParseError> {
        self.separate()?;
        self.vector_here(count, each)
    }

    /// Operands in braces. One alone may stand without.
    fn vector_here(
        &mut self,
        count: u8,
        mut each: impl FnMut(&mut Self) -> Result<Slot, ParseError>,
    ) -> Result<[Slot; 4], ParseError> {
        let braces = self.words.accept('{');
        if !braces && count > 1 {
            return Err(self.words.unexpected("`{`"));
        }
        let mut slots = [0; 4];
        for (index, slot) in (0..count).zip(&mut slots) {
            if index > 0 {
                self.words.expect(',', "`,`")?;
            }
            *slot = each(self)?;
        }
        if braces {
            self.words.expect('}', "`}`")?;
        }
        Ok(slots)
    }
}
