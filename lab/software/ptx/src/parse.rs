//! Reads the directives of a module.

mod body;
mod declare;
mod image;
mod instruction;
mod level;
mod memory;
mod operands;
mod suffixes;

use std::sync::Arc;

use crate::lexer::{Word, Words};
use crate::{Entry, Module, Param, ParseError, Refusal};

use body::Body;
use level::Level;

/// A parameter with its name.
#[derive(Debug, Clone, Copy)]
struct NamedParam<'t> {
    name: &'t str,
    place: Param,
}

pub(crate) fn module(text: &str) -> Result<Module, ParseError> {
    let mut words = Words::read(text)?;
    let level = header(&mut words)?;
    let mut entries: Vec<Arc<Entry>> = Vec::new();
    let mut names = std::collections::HashSet::new();
    loop {
        let line = words.line();
        match words.peek() {
            Word::End => break,
            Word::Dot("visible" | "weak") => {
                words.next();
                if words.peek() != Word::Dot("entry") {
                    return Err(directive(&words));
                }
            }
            Word::Dot("entry") => {
                words.next();
                let entry = entry(&mut words, level)?;
                if !names.insert(entry.name.clone()) {
                    let refusal = Refusal::Duplicate(entry.name);
                    return Err(ParseError { line, refusal });
                }
                entries.push(Arc::new(entry));
            }
            Word::Dot("file") => words.skip_line(),
            Word::Dot("pragma") => pragma(&mut words)?,
            Word::Dot(_) => return Err(directive(&words)),
            _ => return Err(words.unexpected("a directive")),
        }
    }
    let Level { version, target } = level;
    Ok(Module {
        version,
        target,
        entries,
    })
}

/// The next word is a directive that is not supported.
fn directive(words: &Words<'_>) -> ParseError {
    match words.peek() {
        Word::Dot(name) => words.error(Refusal::Directive(format!(".{name}"))),
        _ => words.unexpected("a directive"),
    }
}

/// `.version`, `.target` and `.address_size`.
fn header(words: &mut Words<'_>) -> Result<Level, ParseError> {
    if !words.accept_dot("version") {
        return Err(words.unexpected("`.version`"));
    }
    let expected = "a version, as 6.4";
    let major = words.integer(expected)?;
    let Word::Dot(minor) = words.peek() else {
        return Err(words.unexpected(expected));
    };
    let (Ok(major), Ok(minor)) = (u32::try_from(major), minor.parse()) else {
        return Err(words.unexpected(expected));
    };
    let version = (major, minor);
    Level::check_version(version).map_err(|refusal| words.error(refusal))?;
    words.next();

    let line = words.line();
    if !words.accept_dot("target") {
        return Err(words.unexpected("`.target`"));
    }
    let mut target = None;
    loop {
        let expected = "a target, as sm_60";
        let Word::Name(name) = words.peek() else {
            return Err(words.unexpected(expected));
        };
        match (name.strip_prefix("sm_"), name) {
            (Some(number), _) if target.is_none() => {
                let number = number.trim_end_matches(['a', 'f']);
                target = number.parse().ok();
                if target.is_none() {
                    return Err(words.unexpected(expected));
                }
            }
            (None, "debug" | "texmode_unified" | "texmode_independent") => {}
            _ => return Err(words.unexpected(expected)),
        }
        words.next();
        if !words.accept(',') {
            break;
        }
    }
    let Some(target) = target else {
        return Err(words.unexpected("a target, as sm_60"));
    };
    let level = Level { version, target };
    level
        .check_target()
        .map_err(|refusal| ParseError { line, refusal })?;
    if words.accept_dot("address_size") {
        if words.peek() != Word::Integer(64) {
            return Err(words.unexpected("64"));
        }
        words.next();
    }
    Ok(level)
}

/// `.pragma "text", ...;` Pragmas advise a compiler.
fn pragma(words: &mut Words<'_>) -> Result<(), ParseError> {
    words.next();
    while matches!(words.peek(), Word::Text(_)) || words.peek() == Word::Sign(',') {
        words.next();
    }
    words.expect(';', "`;` behind the pragma")
}

/// A kernel, behind `.entry`.
fn entry(words: &mut Words<'_>, level: Level) -> Result<Entry, ParseError> {
    let name = words.name("the name of the kernel")?;
    let mut params = Vec::new();
    if words.accept('(') && !words.accept(')') {
        loop {
            declare::param(words, level, &mut params)?;
            if words.accept(')') {
                break;
            }
            words.expect(',', "`,` or `)`")?;
        }
    }
    let params_size = params
        .last()
        .map_or(0, |last| last.place.offset + last.place.size);
    let mut max_block = None;
    let mut required_block = None;
    loop {
        match words.peek() {
            Word::Dot("maxntid") => {
                let sides = declare::sides(words)?;
                max_block = Some(
                    sides
                        .iter()
                        .map(|&side| u64::from(side))
                        .fold(1, u64::saturating_mul),
                );
            }
            Word::Dot("reqntid") => required_block = Some(declare::sides(words)?),
            Word::Dot("minnctapersm" | "maxnreg") => {
                words.next();
                words.integer("a number")?;
            }
            Word::Dot("pragma") => pragma(words)?,
            Word::Dot(_) => return Err(directive(words)),
            _ => break,
        }
    }
    let (code, slots) = Body::read(words, level, &params)?;
    Ok(Entry {
        name: name.to_owned(),
        params: params.iter().map(|param| param.place).collect(),
        params_size,
        max_block,
        required_block,
        code,
        slots,
    })
}
