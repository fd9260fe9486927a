//! The modifiers of an instruction.

use crate::lexer::{Word, Words};
use crate::types::{Kind, Type};
use crate::{ParseError, Refusal};

/// Modifiers that an instruction may have. PTX needs fewer.
const MAX: usize = 16;

/// The mnemonic and the modifiers of an instruction, and which modifier is next.
#[derive(Debug)]
pub(super) struct Suffixes<'t> {
    pub(super) mnemonic: &'t str,
    list: Vec<&'t str>,
    at: usize,
    pub(super) line: u32,
}

impl<'t> Suffixes<'t> {
    pub(super) fn read(words: &mut Words<'t>) -> Result<Self, ParseError> {
        let line = words.line();
        let mnemonic = words.name("an instruction")?;
        let mut list = Vec::new();
        while let Word::Dot(suffix) = words.peek() {
            if list.len() == MAX {
                return Err(words.error(Refusal::Limit("modifiers of an instruction")));
            }
            list.push(suffix);
            words.next();
        }
        Ok(Self {
            mnemonic,
            list,
            at: 0,
            line,
        })
    }

    /// The instruction with its modifiers.
    pub(super) fn text(&self) -> String {
        let mut text: String = self.mnemonic.chars().take(40).collect();
        for suffix in &self.list {
            text.push('.');
            text.extend(suffix.chars().take(40));
        }
        text
    }

    pub(super) fn unsupported(&self) -> ParseError {
        self.refuse(Refusal::Instruction(self.text()))
    }

    pub(super) fn operand(&self, reason: &'static str) -> ParseError {
        self.refuse(Refusal::Operand {
            instruction: self.text(),
            reason,
        })
    }

    pub(super) fn refuse(&self, refusal: Refusal) -> ParseError {
        ParseError {
            line: self.line,
            refusal,
        }
    }

    pub(super) fn peek(&self) -> Option<&'t str> {
        self.list.get(self.at).copied()
    }

    /// Takes the next modifier if it is this.
    pub(super) fn accept(&mut self, name: &str) -> bool {
        let found = self.peek() == Some(name);
        if found {
            self.at += 1;
        }
        found
    }

    /// Takes the next modifier if `meaning` has a value for it.
    pub(super) fn accept_any<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
        let found = self.peek().and_then(meaning);
        if found.is_some() {
            self.at += 1;
        }
        found
    }

    /// Takes a modifier for which `meaning` has a value.
    pub(super) fn any<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Result<T, ParseError> {
        self.accept_any(meaning).ok_or_else(|| self.unsupported())
    }

    /// Takes a type of one of these kinds, of `sizes` bytes.
    pub(super) fn ty(&mut self, kinds: &[Kind], sizes: &[u8]) -> Result<Type, ParseError> {
        self.any(|name| {
            Type::named(name).filter(|ty| kinds.contains(&ty.kind) && sizes.contains(&ty.bytes))
        })
    }

    /// There must be no more modifiers.
    pub(super) fn end(&self) -> Result<(), ParseError> {
        if self.at == self.list.len() {
            Ok(())
        } else {
            Err(self.unsupported())
        }
    }
}
