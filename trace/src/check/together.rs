//! Checks events together: nested slices, beginnings with ends, flows from slice to slice.

use std::collections::HashMap;

use serde_json::Value;

use super::events::{Check, FlowEvent, Mark, Role, Slice, Thread};
use super::{DEEPEST, Kind};

impl<'v> Check<'v> {
    /// Checks events together.
    pub(super) fn together(&mut self) {
        for (thread, mut marks) in std::mem::take(&mut self.marks) {
            // At the same time the importer takes ends first.
            marks.sort_by_key(|mark| (mark.at, mark.begins));
            let slices = self.pairs(marks);
            self.contents.slices += slices.len();
            self.slices.entry(thread).or_default().extend(slices);
        }
        for (_, mut marks) in std::mem::take(&mut self.asynchronous) {
            marks.sort_by_key(|mark| mark.at);
            let pairs = self.pairs(marks);
            self.contents.asynchronous += pairs.len();
        }
        let mut slices = std::mem::take(&mut self.slices);
        for slices in slices.values_mut() {
            // Of slices that begin at the same time the importer takes the longest first.
            slices.sort_by_key(|slice| (slice.begin, std::cmp::Reverse(slice.end), slice.event));
            self.nest(slices);
        }
        for (_, events) in std::mem::take(&mut self.flows) {
            self.follow(&slices, events);
        }
    }

    /// Pairs beginnings with their ends, in the importer's order.
    ///
    /// `marks` are of one thread or of one asynchronous id.
    pub(super) fn pairs(&mut self, marks: Vec<Mark>) -> Vec<Slice<'v>> {
        let mut slices = Vec::new();
        let mut open: Vec<Mark> = Vec::new();
        for mark in marks {
            if mark.begins {
                open.push(mark);
                continue;
            }
            match open.pop_if(|open| mark.name.is_empty() || open.name == mark.name) {
                Some(begin) => slices.push(Slice {
                    begin: begin.at,
                    end: mark.at,
                    event: begin.event,
                    args: None,
                }),
                None => self.problem(mark.event, Kind::Unbegun),
            }
        }
        for open in open {
            self.problem(open.event, Kind::Unended);
        }
        slices
    }

    /// Looks for overlaps among the slices of one thread. They are in order.
    pub(super) fn nest(&mut self, slices: &[Slice<'v>]) {
        let mut stack: Vec<Slice<'v>> = Vec::new();
        for &slice in slices {
            while let Some(top) = stack.last() {
                let both_empty = top.begin == top.end && slice.begin == slice.end;
                let over = top.end < slice.begin || top.end == slice.begin && !both_empty;
                if !over {
                    break;
                }
                stack.pop();
            }
            if let Some(top) = stack.last()
                && slice.begin < top.end
                && slice.end > top.end
            {
                self.problem(slice.event, Kind::Overlap(top.event));
                continue;
            }
            if stack.len() >= DEEPEST {
                self.problem(slice.event, Kind::TooDeep);
                continue;
            }
            stack.push(slice);
        }
    }

    /// Checks one flow. Its events are in the order in which the importer takes them.
    pub(super) fn follow(
        &mut self,
        slices: &HashMap<Thread, Vec<Slice<'v>>>,
        mut events: Vec<FlowEvent>,
    ) {
        events.sort_by_key(|flow| (flow.at, flow.event));
        let mut last: Option<(usize, Slice<'v>)> = None;
        let mut started: Option<usize> = None;
        let mut ended = false;
        for flow in events {
            if matches!(flow.role, Role::Start) {
                if started.is_some() {
                    self.problem(flow.event, Kind::FlowTwice);
                    continue;
                }
                started = Some(flow.event);
            } else if started.is_none() {
                self.problem(flow.event, Kind::FlowUnstarted);
                continue;
            } else if ended {
                self.problem(flow.event, Kind::FlowTwice);
                continue;
            }
            ended |= matches!(flow.role, Role::End(_));
            let thread = slices.get(&flow.thread).map_or(&[][..], Vec::as_slice);
            let bound = match bind(thread, flow) {
                Ok(bound) => bound,
                Err(kind) => {
                    self.problem(flow.event, kind);
                    continue;
                }
            };
            if let Some((start, from)) = last {
                if from.begin > bound.begin {
                    self.problem(flow.event, Kind::FlowTurned(start));
                }
                if let Some(nanoseconds) = backwards(from.args, bound.args) {
                    self.problem(flow.event, Kind::FlowBackwards { nanoseconds });
                }
            }
            last = Some((flow.event, bound));
        }
        match started {
            Some(_) if ended => self.contents.flows += 1,
            Some(start) => self.problem(start, Kind::FlowUnended),
            None => {}
        }
    }
}

/// Returns the slice of the thread that a flow's event is bound to. The slices are in order.
fn bind<'v>(slices: &[Slice<'v>], flow: FlowEvent) -> Result<Slice<'v>, Kind> {
    let after = slices.partition_point(|slice| slice.begin <= flow.at);
    if matches!(flow.role, Role::End(false)) {
        let from = slices.partition_point(|slice| slice.begin < flow.at);
        return slices.get(from).copied().ok_or(Kind::FlowUnbound);
    }
    let around = slices[..after].iter().rev();
    // The importer forgets a slice that has ended once another begins. So the last slice counts,
    // or one of those around it.
    let bound = around.take(DEEPEST).find(|slice| slice.end >= flow.at);
    let bound = *bound.ok_or(Kind::FlowUnbound)?;
    // At the same time newer importers take slices first. Older ones take what comes first in the
    // text.
    let touches = || {
        slices[..after]
            .iter()
            .any(|slice| slice.begin < flow.at && slice.end == flow.at)
    };
    match slices[..after].last() {
        Some(last) if last.begin == flow.at && (flow.event < last.event || touches()) => {
            Err(Kind::FlowAtBoundary(last.event))
        }
        _ => Ok(bound),
    }
}

/// Returns by how much `from` ended after `to` began, beyond their stated errors.
fn backwards(from: Option<&Value>, to: Option<&Value>) -> Option<i128> {
    let number = |args: Option<&Value>, field: &str| match args?.get(field)? {
        Value::Number(number) => number.as_i128(),
        Value::String(number) => number.parse().ok(),
        _ => None,
    };
    // Saturates, because a document may contain any number.
    let error = |args, field| number(args, field).unwrap_or(0);
    let ended = number(from, "ended_ns")?.saturating_sub(error(from, "ended_error_ns"));
    let began = number(to, "began_ns")?.saturating_add(error(to, "began_error_ns"));
    (ended > began).then(|| ended.saturating_sub(began))
}
