//! User objects of graphs: when and where their destructors are called.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cuda::{Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, Words, alloc, check, context, kernel, name, names, outcome, spin, stream, within, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["graph"; object_graph, object_exec, object_running, object_counts, object_flags,
        object_of_capture]
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
fn with_object(words: Option<Words>) -> Result<(Handle, Handle), String> {
    let (memory, stream, mut graph, mut exec, mut object) = (alloc(64)?, stream()?, 0, 0, 0);
    kernel(c"spin")?;
    check("cuStreamBeginCapture", cu().stream_begin_capture(stream, 2))?;
    check(
        "cuMemsetD32Async",
        cu().memset_d32_async(memory, 1, 1, stream),
    )?;
    if let Some(words) = words {
        spin(stream, words, 0)?;
    }
    check(
        "cuStreamEndCapture",
        cu().stream_end_capture(stream, &mut graph),
    )?;
    check(
        "cuUserObjectCreate",
        cu().user_object_create(&mut object, 7, destroy, 1, 1),
    )?;
    check(
        "cuGraphRetainUserObject",
        cu().graph_retain_user_object(graph, object, 1, 1),
    )?;
    check(
        "cuGraphInstantiateWithFlags",
        cu().graph_instantiate(&mut exec, graph, 0),
    )?;
    Ok((graph, exec))
}

fn object_graph() -> Answer {
    context()?;
    let (graph, exec) = with_object(None)?;
    line(
        "exec_destroy",
        format!("{}, {}", name(cu().graph_exec_destroy(exec)), destroyed()),
    );
    line(
        "graph_destroy",
        format!("{}, {}", name(cu().graph_destroy(graph)), destroyed()),
    );
    line("own_thread", own_thread());
    Ok(String::new())
}

fn object_exec() -> Answer {
    context()?;
    let (graph, exec) = with_object(None)?;
    let stream = stream()?;
    line(
        "graph_destroy",
        format!("{}, {}", name(cu().graph_destroy(graph)), destroyed()),
    );
    line(
        "launch",
        format!(
            "{}, {}",
            names(&[cu().graph_launch(exec, stream), outcome(stream)]),
            destroyed()
        ),
    );
    line(
        "exec_destroy",
        format!(
            "{}, {}",
            name(cu().graph_exec_destroy(exec)),
            soon_destroyed()
        ),
    );
    line("own_thread", own_thread());
    Ok(String::new())
}

fn object_running() -> Answer {
    context()?;
    let (words, stream) = (Words::new()?, stream()?);
    let (graph, exec) = with_object(Some(words))?;
    line("launch", name(cu().graph_launch(exec, stream)));
    line(
        "graph_destroy",
        format!("{}, {}", name(cu().graph_destroy(graph)), destroyed()),
    );
    line(
        "exec_destroy",
        format!("{}, {}", name(cu().graph_exec_destroy(exec)), destroyed()),
    );
    words.store(0, 1);
    line(
        "then",
        format!("{}, {}", name(outcome(stream)), soon_destroyed()),
    );
    line(
        "synchronize",
        format!("{}, {}", name(cu().ctx_synchronize()), destroyed()),
    );
    line("own_thread", own_thread());
    Ok(String::new())
}

fn object_counts() -> Answer {
    context()?;
    let (mut object, mut graph) = (0, 0);
    let _ = cu().graph_create(&mut graph, 0);
    line(
        "create_0",
        name(cu().user_object_create(&mut object, 0, destroy, 0, 1)),
    );
    line(
        "create_2",
        name(cu().user_object_create(&mut object, 0, destroy, 2, 1)),
    );
    line(
        "retain_0",
        name(cu().graph_retain_user_object(graph, object, 0, 0)),
    );
    line(
        "retain",
        name(cu().graph_retain_user_object(graph, object, 1, 0)),
    );
    line("release_0", name(cu().user_object_release(object, 0)));
    line(
        "release_1",
        format!(
            "{}, {}",
            name(cu().user_object_release(object, 1)),
            destroyed()
        ),
    );
    line(
        "release_2",
        format!(
            "{}, {}",
            name(cu().user_object_release(object, 1)),
            destroyed()
        ),
    );
    line(
        "graph_destroy",
        format!("{}, {}", name(cu().graph_destroy(graph)), destroyed()),
    );
    line("times", DESTROYED.load(Ordering::SeqCst));
    Ok(String::new())
}

fn object_flags() -> Answer {
    context()?;
    let (mut object, mut graph) = (0, 0);
    let _ = cu().graph_create(&mut graph, 0);
    for flags in 0..3 {
        line(
            format!("create_{flags}"),
            name(cu().user_object_create(&mut object, 0, destroy, 1, flags)),
        );
    }
    let _ = cu().user_object_create(&mut object, 0, destroy, 3, 1);
    for flags in 0..4 {
        let code = cu().graph_retain_user_object(graph, object, 1, flags);
        line(format!("retain_{flags}"), name(code));
    }
    line(
        "retain_null_graph",
        name(cu().graph_retain_user_object(0, object, 1, 0)),
    );
    line(
        "retain_null_object",
        name(cu().graph_retain_user_object(graph, 0, 1, 0)),
    );
    Ok(String::new())
}

/// An object is given to the graph of a capture that is then invalidated.
fn object_of_capture() -> Answer {
    context()?;
    let (stream, mut object, mut graph) = (stream()?, 0, 0);
    check("cuStreamBeginCapture", cu().stream_begin_capture(stream, 0))?;
    let (mut status, mut id, mut capturing) = (0, 0, 0);
    let info = cu().stream_get_capture_info(stream, &mut status, &mut id, &mut capturing, 0, 0);
    check("cuStreamGetCaptureInfo", info)?;
    check(
        "cuUserObjectCreate",
        cu().user_object_create(&mut object, 7, destroy, 1, 1),
    )?;
    line(
        "retain",
        name(cu().graph_retain_user_object(capturing, object, 1, 1)),
    );
    line("spoil", name(cu().stream_query(stream)));
    line("not_yet", destroyed());
    line("end", name(cu().stream_end_capture(stream, &mut graph)));
    line("destroyed", destroyed());
    line("own_thread", own_thread());
    Ok(String::new())
}
