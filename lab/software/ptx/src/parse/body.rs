//! Reads the body of a kernel: scopes, registers, labels, statements.

use std::collections::HashMap;

use crate::lexer::{Word, Words};
use crate::op::{Guard, Instruction, Op, Slot, Source};
use crate::types::Type;
use crate::{Param, ParseError, Refusal};

use super::NamedParam;
use super::declare::{self, Registers};
use super::level::Level;

/// Blocks within blocks. Every name is looked for in all of them.
const MAX_DEPTH: usize = 64;
/// Digits of the number of a register.
const MAX_DIGITS: usize = 10;

/// A register: its type, and its slot if an instruction has used it.
#[derive(Debug, Clone, Copy)]
struct Register {
    ty: Type,
    slot: Option<Slot>,
}

/// The names between two braces.
#[derive(Debug, Default)]
struct Scope<'t> {
    parent: Option<usize>,
    registers: HashMap<&'t str, Register>,
    /// Registers with numbers: their type and how many there are.
    ranges: HashMap<&'t str, (Type, u64)>,
    labels: HashMap<&'t str, u32>,
}

/// A branch whose label may come later.
#[derive(Debug)]
struct Jump<'t> {
    instruction: usize,
    scope: usize,
    label: &'t str,
    line: u32,
}

/// What was read of the body of a kernel.
#[derive(Debug)]
pub(super) struct Body<'t> {
    pub(super) level: Level,
    params: HashMap<&'t str, Param>,
    code: Vec<Instruction>,
    slots: Vec<Source>,
    /// The slots of constants, parameters and special registers.
    known: HashMap<Source, Slot>,
    scopes: Vec<Scope<'t>>,
    scope: usize,
    depth: usize,
    jumps: Vec<Jump<'t>>,
}

impl<'t> Body<'t> {
    /// Reads a body with its braces.
    pub(super) fn read(
        words: &mut Words<'t>,
        level: Level,
        params: &[NamedParam<'t>],
    ) -> Result<(Vec<Instruction>, Vec<Source>), ParseError> {
        let mut body = Self {
            level,
            params: params
                .iter()
                .map(|param| (param.name, param.place))
                .collect(),
            code: Vec::new(),
            slots: Vec::new(),
            known: HashMap::new(),
            scopes: vec![Scope::default()],
            scope: 0,
            depth: 0,
            jumps: Vec::new(),
        };
        words.expect('{', "`{`")?;
        while body.statement(words)? {}
        // A thread that runs past the last instruction ends.
        body.push(None, Op::Exit);
        body.resolve()?;
        Ok((body.code, body.slots))
    }

    /// Reads a statement. Returns false behind the end of the body.
    fn statement(&mut self, words: &mut Words<'t>) -> Result<bool, ParseError> {
        match words.peek() {
            Word::Sign('{') => {
                if self.depth == MAX_DEPTH {
                    return Err(words.error(Refusal::Limit("blocks within blocks")));
                }
                words.next();
                self.depth += 1;
                self.scopes.push(Scope {
                    parent: Some(self.scope),
                    ..Scope::default()
                });
                self.scope = self.scopes.len() - 1;
            }
            Word::Sign('}') => {
                words.next();
                let parent = self.scopes.get(self.scope).and_then(|scope| scope.parent);
                let Some(parent) = parent else {
                    return Ok(false);
                };
                self.depth -= 1;
                self.scope = parent;
            }
            Word::Dot("reg") => {
                words.next();
                declare::registers(words, |words, ty, registers| {
                    self.declare(words, ty, registers)
                })?;
            }
            Word::Dot("pragma") => super::pragma(words)?,
            Word::Dot("loc") => words.skip_line(),
            Word::Dot(_) => return Err(super::directive(words)),
            Word::Name(_) if words.peek_second() == Word::Sign(':') => {
                let at = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
                let line = words.line();
                let label = words.name("a label")?;
                if self.is_declared_here(label) {
                    let refusal = Refusal::Duplicate(label.to_owned());
                    return Err(ParseError { line, refusal });
                }
                if let Some(scope) = self.scopes.get_mut(self.scope) {
                    scope.labels.insert(label, at);
                }
                words.next();
            }
            Word::Sign('@') => {
                words.next();
                let guard = self.guard(words)?;
                self.instruction(words, Some(guard))?;
            }
            Word::Name(_) => self.instruction(words, None)?,
            _ => return Err(words.unexpected("an instruction")),
        }
        Ok(true)
    }

    /// Whether the current block has this name. The outermost block has the parameters' names.
    fn is_declared_here(&self, name: &str) -> bool {
        self.scopes.get(self.scope).is_some_and(|scope| {
            scope.registers.contains_key(name)
                || scope.labels.contains_key(name)
                || in_range(scope, name).is_some()
                || scope.parent.is_none() && self.params.contains_key(name)
        })
    }

    fn declare(
        &mut self,
        words: &Words<'t>,
        ty: Type,
        registers: Registers<'t>,
    ) -> Result<(), ParseError> {
        let duplicate = |name: &str| Err(words.error(Refusal::Duplicate(name.to_owned())));
        match registers {
            Registers::One(name) => {
                if self.is_declared_here(name) {
                    return duplicate(name);
                }
                if let Some(scope) = self.scopes.get_mut(self.scope) {
                    scope.registers.insert(name, Register { ty, slot: None });
                }
            }
            Registers::Range(name, count) => {
                if let Some(scope) = self.scopes.get_mut(self.scope)
                    && scope.ranges.insert(name, (ty, count)).is_some()
                {
                    return duplicate(name);
                }
            }
        }
        Ok(())
    }

    /// A predicate, behind `@` or as an operand: `%p` or `!%p`.
    pub(super) fn guard(&mut self, words: &mut Words<'t>) -> Result<Guard, ParseError> {
        let negated = words.accept('!');
        let line = words.line();
        let name = words.name("a predicate")?;
        let (slot, ty) = self.register(name, line)?;
        if !ty.is_predicate() {
            let reason = "the register is no predicate";
            let refusal = Refusal::Operand {
                instruction: format!("@{name}"),
                reason,
            };
            return Err(ParseError { line, refusal });
        }
        Ok(Guard { slot, negated })
    }

    /// The slot and the type of a declared register.
    pub(super) fn register(
        &mut self,
        name: &'t str,
        line: u32,
    ) -> Result<(Slot, Type), ParseError> {
        let mut next = Some(self.scope);
        while let Some(index) = next
            && let Some(scope) = self.scopes.get(index)
        {
            let named = scope.registers.get(name).copied();
            let numbered = || in_range(scope, name).map(|ty| Register { ty, slot: None });
            next = scope.parent;
            let Some(mut register) = named.or_else(numbered) else {
                continue;
            };
            let slot = match register.slot {
                Some(slot) => slot,
                None => self.add(Source::Register, line)?,
            };
            register.slot = Some(slot);
            if let Some(scope) = self.scopes.get_mut(index) {
                scope.registers.insert(name, register);
            }
            return Ok((slot, register.ty));
        }
        Err(ParseError {
            line,
            refusal: Refusal::Undeclared(name.to_owned()),
        })
    }

    pub(super) fn param(&self, name: &str, line: u32) -> Result<Param, ParseError> {
        let refusal = || Refusal::Undeclared(name.to_owned());
        let place = self.params.get(name).copied();
        place.ok_or_else(|| ParseError {
            line,
            refusal: refusal(),
        })
    }

    /// The slot of something that a thread cannot change.
    pub(super) fn fixed(&mut self, source: Source, line: u32) -> Result<Slot, ParseError> {
        if let Some(&slot) = self.known.get(&source) {
            return Ok(slot);
        }
        let slot = self.add(source, line)?;
        self.known.insert(source, slot);
        Ok(slot)
    }

    fn add(&mut self, source: Source, line: u32) -> Result<Slot, ParseError> {
        let refusal = Refusal::Limit("registers and constants of a kernel");
        let slot = Slot::try_from(self.slots.len()).map_err(|_| ParseError { line, refusal })?;
        self.slots.push(source);
        Ok(slot)
    }

    pub(super) fn push(&mut self, guard: Option<Guard>, op: Op) {
        self.code.push(Instruction { guard, op });
    }

    pub(super) fn push_branch(&mut self, guard: Option<Guard>, label: &'t str, line: u32) {
        let (instruction, scope) = (self.code.len(), self.scope);
        self.jumps.push(Jump {
            instruction,
            scope,
            label,
            line,
        });
        self.push(guard, Op::Branch { target: 0 });
    }

    /// Gives every branch the place of its label.
    fn resolve(&mut self) -> Result<(), ParseError> {
        for jump in &self.jumps {
            let mut next = Some(jump.scope);
            let mut found = None;
            while let Some(scope) = next.and_then(|index| self.scopes.get(index)) {
                found = scope.labels.get(jump.label).copied();
                next = if found.is_none() { scope.parent } else { None };
            }
            let Some(target) = found else {
                let refusal = Refusal::Undeclared(jump.label.to_owned());
                return Err(ParseError {
                    line: jump.line,
                    refusal,
                });
            };
            if let Some(instruction) = self.code.get_mut(jump.instruction) {
                instruction.op = Op::Branch { target };
            }
        }
        Ok(())
    }
}

/// The type of a register of a range, as `%r7` of `%r<10>`.
fn in_range(scope: &Scope<'_>, name: &str) -> Option<Type> {
    if scope.ranges.is_empty() {
        return None;
    }
    let digits = name
        .bytes()
        .rev()
        .take(MAX_DIGITS)
        .take_while(u8::is_ascii_digit)
        .count();
    (1..=digits).find_map(|digits| {
        let (prefix, number) = name.split_at_checked(name.len() - digits)?;
        let &(ty, count) = scope.ranges.get(prefix)?;
        let canonical = number.len() == 1 || !number.starts_with('0');
        let number: u64 = number.parse().ok()?;
        (canonical && number < count).then_some(ty)
    })
}
