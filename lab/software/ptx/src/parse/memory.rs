//! Reads instructions that access memory.

use crate::ParseError;
use crate::lexer::Words;
use crate::op::{Atomic, Compute, Op, Slot, Source};
use crate::types::{Kind, Type};

use super::body::Body;
use super::operands::{Fit, Operands};
use super::suffixes::Suffixes;

/// How an access orders memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Weak,
    Volatile,
    Relaxed,
    Acquire,
    Release,
    Both,
}

impl<'t> Body<'t> {
    pub(super) fn memory(
        &mut self,
        words: &mut Words<'t>,
        s: &mut Suffixes<'t>,
    ) -> Result<Option<Op>, ParseError> {
        match s.mnemonic {
            "ld" => self.load(words, s).map(Some),
            "st" => self.store(words, s).map(Some),
            "atom" | "red" => self.atomic(words, s).map(Some),
            "nanosleep" => {
                self.require(s, (6, 3), 70)?;
                let ty = s.ty(&[Kind::Unsigned], &[4])?;
                s.end()?;
                Operands::new(words, self, s).a(ty)?;
                Ok(Some(Op::Pause))
            }
            _ => Ok(None),
        }
    }

    fn load(&mut self, words: &mut Words<'t>, s: &mut Suffixes<'t>) -> Result<Op, ParseError> {
        let order = self.order(s, Order::Acquire)?;
        let plain = order == Order::Weak;
        let parameter = plain && s.accept("param");
        if !parameter {
            let global = s.accept("global");
            if order == Order::Weak {
                s.accept_any(|name| matches!(name, "ca" | "cg" | "cs" | "lu" | "cv").then_some(()));
                if global {
                    s.accept("nc");
                }
            }
        }
        let ty = s.any(|name| Type::named(name).filter(|ty| !ty.is_predicate()))?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let (d, width) = o.register(ty, Fit::Larger)?;
        if parameter {
            let a = o.parameter(ty, width)?;
            return Ok(Op::Compute(Compute::Move { d, a }));
        }
        let at = o.address()?;
        Ok(Op::Load {
            d,
            at,
            ty,
            width,
            acquire: order == Order::Acquire,
        })
    }

    fn store(&mut self, words: &mut Words<'t>, s: &mut Suffixes<'t>) -> Result<Op, ParseError> {
        let order = self.order(s, Order::Release)?;
        s.accept("global");
        if order == Order::Weak {
            s.accept_any(|name| matches!(name, "wb" | "cg" | "cs" | "wt").then_some(()));
        }
        let ty = s.any(|name| Type::named(name).filter(|ty| !ty.is_predicate()))?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let at = o.address()?;
        let a = o.source(ty, Fit::Larger)?;
        Ok(Op::Store {
            at,
            a,
            bytes: ty.bytes,
            release: order == Order::Release,
        })
    }

    /// The order and the scope of a load or a store. `strongest` is the order that only one of
    /// them has.
    fn order(&self, s: &mut Suffixes<'t>, strongest: Order) -> Result<Order, ParseError> {
        let order = s.accept_any(|name| {
            Some(match name {
                "weak" => Order::Weak,
                "volatile" => Order::Volatile,
                "relaxed" => Order::Relaxed,
                "acquire" if strongest == Order::Acquire => Order::Acquire,
                "release" if strongest == Order::Release => Order::Release,
                _ => return None,
            })
        });
        if order == Some(Order::Weak) {
            self.require(s, (6, 0), 70)?;
        }
        let order = order.unwrap_or(Order::Weak);
        if !matches!(order, Order::Weak | Order::Volatile) {
            self.require(s, (6, 0), 70)?;
            s.any(scope)?;
        }
        Ok(order)
    }

    fn atomic(&mut self, words: &mut Words<'t>, s: &mut Suffixes<'t>) -> Result<Op, ParseError> {
        let returns = s.mnemonic == "atom";
        let order = s.accept_any(|name| match name {
            "relaxed" => Some(Order::Relaxed),
            "acquire" if returns => Some(Order::Acquire),
            "release" => Some(Order::Release),
            "acq_rel" if returns => Some(Order::Both),
            _ => None,
        });
        let before = s.accept_any(scope);
        s.accept("global");
        // NVIDIA's driver takes the scope behind the space, too.
        let scope = before.or_else(|| s.accept_any(scope));
        if order.is_some() {
            self.require(s, (6, 0), 70)?;
        } else if scope.is_some() {
            self.require(s, (5, 0), 60)?;
        }
        let op = s.any(|name| {
            Some(match name {
                "add" => Atomic::Add,
                "min" => Atomic::Min,
                "max" => Atomic::Max,
                "and" => Atomic::And,
                "or" => Atomic::Or,
                "xor" => Atomic::Xor,
                "inc" => Atomic::Increment,
                "dec" => Atomic::Decrement,
                "exch" if returns => Atomic::Exchange,
                "cas" if returns => Atomic::CompareExchange,
                _ => return None,
            })
        })?;
        let ty = s.any(|name| Type::named(name).filter(|&ty| has(op, ty)))?;
        s.end()?;
        let mut o = Operands::new(words, self, s);
        let d = if returns { o.d_or_sink(ty)? } else { None };
        let at = o.address()?;
        let a = o.a(ty)?;
        let b: Slot = match op {
            Atomic::CompareExchange => o.a(ty)?,
            _ => a,
        };
        Ok(Op::Atomic {
            op,
            ty,
            d,
            at,
            a,
            b,
        })
    }
}

fn scope(name: &str) -> Option<()> {
    matches!(name, "cta" | "gpu" | "sys").then_some(())
}

/// Whether the atomic operation exists for this type.
fn has(op: Atomic, ty: Type) -> bool {
    match op {
        Atomic::And | Atomic::Or | Atomic::Xor | Atomic::Exchange | Atomic::CompareExchange => {
            ty.kind == Kind::Bits && ty.bytes >= 4
        }
        Atomic::Min | Atomic::Max => {
            matches!(ty.kind, Kind::Unsigned | Kind::Signed) && ty.bytes >= 4
        }
        Atomic::Add => {
            ty.kind == Kind::Unsigned && ty.bytes >= 4 || ty.kind == Kind::Signed && ty.bytes == 4
        }
        Atomic::Increment | Atomic::Decrement => ty == Type::U32,
    }
}

impl Operands<'_, '_> {
    /// A place in the parameters, as `[name+4]`, that `ld.param` reads.
    fn parameter(&mut self, ty: Type, width: u8) -> Result<Slot, ParseError> {
        self.separate()?;
        self.words.expect('[', "`[`")?;
        let line = self.words.line();
        let name = self.words.name("the name of a parameter")?;
        let place = self.body.param(name, line)?;
        let offset = self.offset()?;
        let bytes = usize::from(ty.bytes);
        let start = usize::try_from(offset).ok();
        let start = start.filter(|start| start + bytes <= place.size);
        let start = start.and_then(|start| u16::try_from(place.offset + start).ok());
        let Some(start) = start else {
            return Err(self.refuse_operand("the access is outside of the parameter"));
        };
        if usize::from(start) % bytes != 0 {
            return Err(self.refuse_operand("the access to the parameter is misaligned"));
        }
        let signed = ty.is_signed();
        let source = Source::Param {
            offset: start,
            bytes: ty.bytes,
            signed,
            width,
        };
        self.body.fixed(source, line)
    }
}
