//! Checks each event alone.

use std::collections::HashMap;

use serde_json::Value;

use super::{Contents, Kind, Problem};

/// Largest distance from zero at which doubles still distinguish nanoseconds, in nanoseconds.
const FARTHEST: f64 = 1e15;

pub(super) type Thread = (u64, u64);

/// A slice of a thread. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice<'v> {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) event: usize,
    pub(super) args: Option<&'v Value>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Start,
    Step,
    /// Whether it is bound to the slice around it, and not to the next one.
    End(bool),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FlowEvent {
    pub(super) at: i64,
    pub(super) thread: Thread,
    pub(super) event: usize,
    pub(super) role: Role,
}

#[derive(Debug, Clone)]
pub(super) struct Mark {
    pub(super) at: i64,
    pub(super) begins: bool,
    pub(super) event: usize,
    pub(super) name: String,
}

pub(super) type Key = (String, String, String);

#[derive(Default)]
pub(super) struct Check<'v> {
    pub(super) problems: Vec<Problem>,
    pub(super) contents: Contents,
    pub(super) slices: HashMap<Thread, Vec<Slice<'v>>>,
    pub(super) marks: HashMap<Thread, Vec<Mark>>,
    pub(super) asynchronous: HashMap<(u64, String, String), Vec<Mark>>,
    /// By id, category and name.
    pub(super) flows: HashMap<Key, Vec<FlowEvent>>,
}

impl<'v> Check<'v> {
    pub(super) fn problem(&mut self, event: usize, kind: Kind) {
        let event = Some(event);
        self.problems.push(Problem { event, kind });
    }

    pub(super) fn event(&mut self, index: usize, event: &'v Value) {
        if !event.is_object() {
            return self.problem(index, Kind::NotAnObject);
        }
        let phase = match event.get("ph") {
            None => {
                let (phase, field) = ('?', "ph");
                return self.problem(index, Kind::Missing { phase, field });
            }
            Some(Value::String(phase)) => phase,
            Some(other) => return self.wrong(index, "ph", "a letter", other),
        };
        for field in ["name", "cat"] {
            if let Some(Value::String(text)) = event.get(field)
                && text.chars().any(|c| c.is_ascii_control())
            {
                self.problem(index, Kind::Control(field));
            }
        }
        let taken = match phase.as_str() {
            "M" => self.metadata(index, event),
            "X" => self.complete(index, event),
            "B" | "E" => self.duration(index, event, phase == "B"),
            "b" | "e" | "n" => self.nestable(index, event, phase),
            "i" | "I" | "R" => self.instant(index, event),
            "s" | "t" | "f" => self.flow(index, event, phase),
            "C" => self.counter(index, event),
            _ => Err(Kind::Phase(phase.clone())),
        };
        if let Err(kind) = taken {
            self.problem(index, kind);
        }
    }

    pub(super) fn wrong(
        &mut self,
        index: usize,
        field: &'static str,
        expected: &'static str,
        found: &Value,
    ) {
        self.problem(index, wrong(field, expected, found));
    }

    pub(super) fn metadata(&mut self, _: usize, event: &Value) -> Result<(), Kind> {
        let name = string(event, 'M', "name")?;
        let args = event.get("args").ok_or(Kind::Missing {
            phase: 'M',
            field: "args",
        })?;
        match name {
            "process_name" | "thread_name" => {
                if string(args, 'M', "name")?.is_empty() {
                    return Err(wrong("args.name", "not empty", &Value::from("")));
                }
            }
            "process_labels" => {
                string(args, 'M', "labels")?;
            }
            "process_sort_index" | "thread_sort_index" => match args.get("sort_index") {
                Some(index) if index.is_i64() => {}
                Some(other) => return Err(wrong("args.sort_index", "an integer", other)),
                None => {
                    let (phase, field) = ('M', "args.sort_index");
                    return Err(Kind::Missing { phase, field });
                }
            },
            other => return Err(Kind::Metadata(other.to_owned())),
        }
        whole(event, 'M', "pid")?;
        if name.starts_with("thread") {
            whole(event, 'M', "tid")?;
        }
        match name {
            "process_name" => self.contents.processes += 1,
            "thread_name" => self.contents.threads += 1,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn complete(&mut self, index: usize, event: &'v Value) -> Result<(), Kind> {
        let begin = time(event, 'X', "ts")?;
        let duration = time(event, 'X', "dur")?;
        let thread = thread(event, 'X')?;
        string(event, 'X', "name")?;
        self.contents.slices += 1;
        self.slices.entry(thread).or_default().push(Slice {
            begin,
            end: begin + duration,
            event: index,
            args: event.get("args"),
        });
        Ok(())
    }

    pub(super) fn duration(
        &mut self,
        index: usize,
        event: &Value,
        begins: bool,
    ) -> Result<(), Kind> {
        let phase = if begins { 'B' } else { 'E' };
        let mark = Mark {
            at: time(event, phase, "ts")?,
            begins,
            event: index,
            // An end event may omit the name.
            name: match event.get("name") {
                None if !begins => String::new(),
                _ => string(event, phase, "name")?.to_owned(),
            },
        };
        let thread = thread(event, phase)?;
        self.marks.entry(thread).or_default().push(mark);
        Ok(())
    }

    pub(super) fn nestable(
        &mut self,
        index: usize,
        event: &Value,
        phase: &str,
    ) -> Result<(), Kind> {
        let letter = phase.chars().next().unwrap_or('b');
        let mark = Mark {
            at: time(event, letter, "ts")?,
            begins: phase == "b",
            event: index,
            name: string(event, letter, "name")?.to_owned(),
        };
        let pid = whole(event, letter, "pid")?;
        let id = identity(event, letter)?;
        if phase != "n" {
            let category = category(event)?;
            let of = self.asynchronous.entry((pid, category, id)).or_default();
            of.push(mark);
        }
        Ok(())
    }

    pub(super) fn instant(&mut self, index: usize, event: &'v Value) -> Result<(), Kind> {
        let begin = time(event, 'i', "ts")?;
        string(event, 'i', "name")?;
        match event.get("s") {
            None => {}
            Some(Value::String(scope)) if matches!(scope.as_str(), "g" | "p" | "t") => {}
            Some(other) => return Err(wrong("s", "\"g\", \"p\" or \"t\"", other)),
        }
        self.contents.instants += 1;
        match event.get("s").and_then(Value::as_str) {
            Some("g") => {}
            Some("p") => {
                whole(event, 'i', "pid")?;
            }
            // The importer treats it as a slice without duration.
            _ => {
                let thread = thread(event, 'i')?;
                self.slices.entry(thread).or_default().push(Slice {
                    begin,
                    end: begin,
                    event: index,
                    args: None,
                });
            }
        }
        Ok(())
    }

    pub(super) fn flow(&mut self, index: usize, event: &Value, phase: &str) -> Result<(), Kind> {
        let letter = phase.chars().next().unwrap_or('s');
        let role = match phase {
            "s" => Role::Start,
            "t" => Role::Step,
            _ => match event.get("bp") {
                None => Role::End(false),
                Some(Value::String(at)) if at == "e" => Role::End(true),
                Some(other) => return Err(wrong("bp", "\"e\"", other)),
            },
        };
        let name = string(event, letter, "name")?.to_owned();
        let flow = FlowEvent {
            at: time(event, letter, "ts")?,
            thread: thread(event, letter)?,
            event: index,
            role,
        };
        let key = (identity(event, letter)?, category(event)?, name);
        self.flows.entry(key).or_default().push(flow);
        Ok(())
    }

    pub(super) fn counter(&mut self, _: usize, event: &Value) -> Result<(), Kind> {
        time(event, 'C', "ts")?;
        string(event, 'C', "name")?;
        whole(event, 'C', "pid")?;
        let args = event.get("args").ok_or(Kind::Missing {
            phase: 'C',
            field: "args",
        })?;
        let numbers = args.as_object();
        if numbers.is_some_and(|args| args.values().all(Value::is_number)) {
            Ok(())
        } else {
            Err(wrong("args", "an object of numbers", args))
        }
    }
}

fn wrong(field: &'static str, expected: &'static str, found: &Value) -> Kind {
    Kind::Wrong {
        field,
        expected,
        found: found.to_string(),
    }
}

fn string<'v>(event: &'v Value, phase: char, field: &'static str) -> Result<&'v str, Kind> {
    match event.get(field) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(wrong(field, "a string", other)),
        None => Err(Kind::Missing { phase, field }),
    }
}

/// Returns a 32-bit number, as the importer requires for processes and threads. 0 means none there.
fn whole(event: &Value, phase: char, field: &'static str) -> Result<u64, Kind> {
    let found = event.get(field).ok_or(Kind::Missing { phase, field })?;
    match found.as_u64() {
        Some(number) if (1..=u64::from(u32::MAX)).contains(&number) => Ok(number),
        _ => Err(wrong(field, "a whole number from 1 to 4294967295", found)),
    }
}

fn thread(event: &Value, phase: char) -> Result<Thread, Kind> {
    Ok((whole(event, phase, "pid")?, whole(event, phase, "tid")?))
}

/// Converts microseconds to nanoseconds.
fn time(event: &Value, phase: char, field: &'static str) -> Result<i64, Kind> {
    let found = event.get(field).ok_or(Kind::Missing { phase, field })?;
    let expected = "microseconds from 0 to 1e12, as a number";
    let nanoseconds = match found.as_f64() {
        Some(microseconds) => (microseconds * 1000.0).round(),
        None => return Err(wrong(field, expected, found)),
    };
    if !(0.0..=FARTHEST).contains(&nanoseconds) {
        return Err(wrong(field, expected, found));
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the value is below 10 to the 15th"
    )]
    Ok(nanoseconds as i64)
}

fn category(event: &Value) -> Result<String, Kind> {
    match event.get("cat") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong("cat", "a string", other)),
    }
}

/// Returns an id: a whole number, or a string, which is hexadecimal for flows.
fn identity(event: &Value, phase: char) -> Result<String, Kind> {
    match event.get("id") {
        Some(Value::Number(id)) if id.is_u64() => Ok(id.to_string()),
        Some(Value::String(id)) => {
            let bare = id.strip_prefix("0x").unwrap_or(id);
            match u64::from_str_radix(bare, 16) {
                Ok(number) => Ok(number.to_string()),
                Err(_) if matches!(phase, 'b' | 'e' | 'n') && !id.is_empty() => Ok(id.clone()),
                Err(_) => Err(wrong(
                    "id",
                    "a hexadecimal number",
                    &Value::from(id.clone()),
                )),
            }
        }
        Some(other) => Err(wrong("id", "a whole number or a string", other)),
        None => Err(Kind::Missing { phase, field: "id" }),
    }
}
