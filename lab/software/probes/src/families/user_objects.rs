//! User objects of graphs: when and where their destructors are called.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub(crate) fn list(all: &mut Probes) {
    all.family("graph", QUESTIONS);
}

static DESTROYED: AtomicU64 = AtomicU64::new(0);
static BY: Mutex<Option<std::thread::ThreadId>> = Mutex::new(None);

pub(super) unsafe extern "C" fn destroy(_: usize) {
    *BY.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
    DESTROYED.fetch_add(1, Ordering::SeqCst);
}

fn destroyed() -> &'static str {
    if DESTROYED.load(Ordering::SeqCst) != 0 {
        "at once"
    } else if within(1000, || DESTROYED.load(Ordering::SeqCst) != 0) {
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
    let by = *BY.lock().unwrap_or_else(PoisonError::into_inner);
    yes(by == Some(std::thread::current().id()))
}

/// A graph that owns a user object.
fn with_object(words: Option<Words>) -> (Handle, Handle) {
    let (memory, stream, mut graph, mut exec, mut object) = (alloc(64), stream(), 0, 0, 0);
    kernel(c"spin");
    check(stream_begin_capture(stream, 2));
    check(memset_d32_async(memory, 1, 1, stream));
    if let Some(words) = words {
        spin(stream, words, 0);
    }
    check(stream_end_capture(stream, &mut graph));
    check(user_object_create(&mut object, 7, destroy, 1, 1));
    check(retain_user_object(graph, object, 1, 1));
    check(graph_instantiate(&mut exec, graph, 0));
    (graph, exec)
}

const QUESTIONS: Questions = &[
    ("object_graph", || {
        let (graph, exec) = with_object(None);
        line("exec_destroy", (graph_exec_destroy(exec), destroyed()));
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line("own_thread", own_thread());
    }),
    ("object_exec", || {
        let (graph, exec) = with_object(None);
        let stream = stream();
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line(
            "launch",
            (ended(graph_launch(exec, stream), stream), destroyed()),
        );
        line("exec_destroy", (graph_exec_destroy(exec), soon_destroyed()));
        line("own_thread", own_thread());
    }),
    ("object_running", || {
        let (words, stream) = (Words::new(), stream());
        let (graph, exec) = with_object(Some(words));
        line("launch", graph_launch(exec, stream));
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line("exec_destroy", (graph_exec_destroy(exec), destroyed()));
        words.store(0, 1);
        line("then", (outcome(stream), soon_destroyed()));
        line("synchronize", (ctx_synchronize(), destroyed()));
        line("own_thread", own_thread());
    }),
    ("object_counts", || {
        let (mut object, mut graph) = (0, 0);
        graph_create(&mut graph, 0);
        line(
            "create_0",
            user_object_create(&mut object, 0, destroy, 0, 1),
        );
        line(
            "create_2",
            user_object_create(&mut object, 0, destroy, 2, 1),
        );
        line("retain_0", retain_user_object(graph, object, 0, 0));
        line("retain", retain_user_object(graph, object, 1, 0));
        line("release_0", user_object_release(object, 0));
        line("release_1", (user_object_release(object, 1), destroyed()));
        line("release_2", (user_object_release(object, 1), destroyed()));
        line("graph_destroy", (graph_destroy(graph), destroyed()));
        line("times", DESTROYED.load(Ordering::SeqCst));
    }),
    ("object_flags", || {
        let (mut object, mut graph) = (0, 0);
        graph_create(&mut graph, 0);
        for flags in 0..3 {
            line(
                format!("create_{flags}"),
                user_object_create(&mut object, 0, destroy, 1, flags),
            );
        }
        user_object_create(&mut object, 0, destroy, 3, 1);
        for flags in 0..4 {
            let code = retain_user_object(graph, object, 1, flags);
            line(format!("retain_{flags}"), code);
        }
        line("retain_null_graph", retain_user_object(0, object, 1, 0));
        line("retain_null_object", retain_user_object(graph, 0, 1, 0));
    }),
    // An object is given to the graph of a capture that is then invalidated.
    ("object_of_capture", || {
        let (stream, mut object, mut graph) = (stream(), 0, 0);
        check(stream_begin_capture(stream, 0));
        let (mut status, mut id, mut capturing) = (0, 0, 0);
        let info = capture_info(stream, &mut status, &mut id, &mut capturing, 0, 0);
        check(info);
        check(user_object_create(&mut object, 7, destroy, 1, 1));
        line("retain", retain_user_object(capturing, object, 1, 1));
        line("spoil", stream_query(stream));
        line("not_yet", destroyed());
        line("end", stream_end_capture(stream, &mut graph));
        line("destroyed", destroyed());
        line("own_thread", own_thread());
    }),
];
