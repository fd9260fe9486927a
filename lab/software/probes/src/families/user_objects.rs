//! User objects of graphs: when and where their destructors are called.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread::ThreadId;

pub(crate) fn list(all: &mut Probes) {
    all.family("graph", QUESTIONS);
}

/// The threads that have destroyed objects.
static BY: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

unsafe extern "C" fn destroy(_: usize) {
    let mut by = BY.lock().unwrap_or_else(PoisonError::into_inner);
    by.push(std::thread::current().id());
}

fn by() -> Vec<ThreadId> {
    BY.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn destroyed() -> &'static str {
    if !by().is_empty() {
        "at once"
    } else if within(1000, || !by().is_empty()) {
        "soon"
    } else {
        "not"
    }
}

/// As `destroyed`, where another thread destroys the object, before or after the call returns.
fn soon_destroyed() -> &'static str {
    match destroyed() {
        "at once" => "soon",
        other => other,
    }
}

fn own_thread() -> &'static str {
    yes(by().last() == Some(&std::thread::current().id()))
}

/// A graph that owns a user object, and spins until a word is 1.
fn with_object(words: Words) -> (Handle, Handle) {
    let (mut exec, mut object) = (0, 0);
    kernel(c"spin");
    let (graph, _) = capture(|stream| spin(stream, words, 0));
    check(user_object_create(&mut object, 7, destroy, 1, 1));
    check(retain_user_object(graph, object, 1, 1));
    check(graph_instantiate(&mut exec, graph, 0));
    (graph, exec)
}

const QUESTIONS: Questions = &[
    ("object_graph", || {
        let (graph, exec) = with_object(Words::new());
        line("exec_destroy", (graph_exec_destroy(exec), destroyed()));
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line("own_thread", own_thread());
    }),
    ("object_exec", || {
        let (words, stream) = (Words::new(), stream());
        let (graph, exec) = with_object(words);
        words.store(0, 1);
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        let launched = ended(graph_launch(exec, stream), stream);
        line("launch", (launched, destroyed()));
        line("exec_destroy", (graph_exec_destroy(exec), soon_destroyed()));
        line("own_thread", own_thread());
    }),
    ("object_running", || {
        let (words, stream) = (Words::new(), stream());
        let (graph, exec) = with_object(words);
        line("launch", graph_launch(exec, stream));
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line("exec_destroy", (graph_exec_destroy(exec), destroyed()));
        words.store(0, 1);
        line("then", (outcome(stream), soon_destroyed()));
        line("own_thread", own_thread());
    }),
    ("object_counts", || {
        let (mut object, mut graph) = (0, 0);
        graph_create(&mut graph, 0);
        let mut create = |count| user_object_create(&mut object, 0, destroy, count, 1);
        line("create_0", create(0));
        line("create_2", create(2));
        line("retain_0", retain_user_object(graph, object, 0, 0));
        line("retain", retain_user_object(graph, object, 1, 0));
        line("release_0", user_object_release(object, 0));
        line("release_1", (user_object_release(object, 1), destroyed()));
        line("release_2", (user_object_release(object, 1), destroyed()));
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line("times", by().len());
    }),
    // An object is given to the graph of a capture that is then invalidated.
    ("object_of_capture", || {
        let (stream, mut object, mut graph) = (stream(), 0, 0);
        check(stream_begin_capture(stream, 0));
        let (mut status, mut id) = (0, 0);
        let info = capture_info(stream, &mut status, &mut id, &mut graph, 0, 0);
        check(info);
        check(user_object_create(&mut object, 7, destroy, 1, 1));
        line("retain", retain_user_object(graph, object, 1, 1));
        line("spoil", stream_query(stream));
        line("not_yet", destroyed());
        line("end", stream_end_capture(stream, &mut graph));
        line("destroyed", destroyed());
        line("own_thread", own_thread());
    }),
];
