//! Reads declarations of parameters and registers.

use crate::lexer::{Word, Words};
use crate::types::Type;
use crate::{Param, ParseError, Refusal};

use super::NamedParam;
use super::level::Level;

/// A type, with its dot.
fn ty(words: &mut Words<'_>) -> Result<Type, ParseError> {
    match words.peek() {
        Word::Dot(name) => {
            let ty = Type::named(name).ok_or_else(|| match name {
                "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f64" => {
                    words.error(Refusal::FloatingPoint(format!(".{name}")))
                }
                _ => super::directive(words),
            })?;
            words.next();
            Ok(ty)
        }
        _ => Err(words.unexpected("a type")),
    }
}

/// `.param .u64 name`, `.param .u64 .ptr .global .align 8 name` or `.param .align 4 .b8 name[12]`.
pub(super) fn param<'t>(
    words: &mut Words<'t>,
    level: Level,
    params: &mut Vec<NamedParam<'t>>,
) -> Result<(), ParseError> {
    if !words.accept_dot("param") {
        return Err(words.unexpected("`.param`"));
    }
    let mut align = None;
    if words.accept_dot("align") {
        align = Some(alignment(words)?);
    }
    let ty = ty(words)?;
    if ty.is_predicate() {
        return Err(words.error(Refusal::Directive(".pred".to_owned())));
    }
    if words.accept_dot("ptr") {
        words.accept_dot("global");
        if words.accept_dot("align") {
            // The alignment of what the parameter points to.
            alignment(words)?;
        }
    }
    let too_large = Refusal::Limit("the parameters of the kernel");
    let name = words.name("the name of the parameter")?;
    if params.iter().any(|param| param.name == name) {
        return Err(words.error(Refusal::Duplicate(name.to_owned())));
    }
    let mut size = usize::from(ty.bytes);
    if words.accept('[') {
        let expected = "the number of elements";
        if words.peek() == Word::Integer(0) {
            return Err(words.unexpected(expected));
        }
        let count = words.integer(expected)?;
        words.expect(']', "`]`")?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        size = size.saturating_mul(count);
    }
    let align = align.unwrap_or(usize::from(ty.bytes));
    let end = params
        .last()
        .map_or(0, |last| last.place.offset + last.place.size);
    let offset = end.next_multiple_of(align);
    if offset.saturating_add(size) > level.max_params() {
        return Err(words.error(too_large));
    }
    params.push(NamedParam {
        name,
        place: Param { offset, size },
    });
    Ok(())
}

fn alignment(words: &mut Words<'_>) -> Result<usize, ParseError> {
    let expected = "a power of two up to 128";
    match words.peek() {
        Word::Integer(align @ 1..=128) if align.is_power_of_two() => {
            words.next();
            usize::try_from(align).map_err(|_| words.unexpected(expected))
        }
        _ => Err(words.unexpected(expected)),
    }
}

/// One to three numbers behind `.maxntid` or `.reqntid`.
pub(super) fn sides(words: &mut Words<'_>) -> Result<[u32; 3], ParseError> {
    words.next();
    let mut sides = [1; 3];
    for (index, side) in sides.iter_mut().enumerate() {
        if index > 0 && !words.accept(',') {
            break;
        }
        let expected = "a number of threads";
        let value = u32::try_from(words.integer(expected)?);
        *side = value.map_err(|_| words.unexpected(expected))?;
    }
    Ok(sides)
}

/// Registers that are declared together.
pub(super) enum Registers<'t> {
    One(&'t str),
    /// `%r<10>`: `%r0` to `%r9`.
    Range(&'t str, u64),
}

/// `.reg .u32 %a, %b, %r<10>;`, behind `.reg`.
pub(super) fn registers<'t>(
    words: &mut Words<'t>,
    mut each: impl FnMut(&mut Words<'t>, Type, Registers<'t>) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let ty = ty(words)?;
    loop {
        let name = words.name("the name of a register")?;
        let registers = if words.accept('<') {
            let count = words.integer("the number of registers")?;
            words.expect('>', "`>`")?;
            Registers::Range(name, count)
        } else {
            Registers::One(name)
        };
        each(words, ty, registers)?;
        if words.accept(';') {
            return Ok(());
        }
        words.expect(',', "`,` or `;`")?;
    }
}
