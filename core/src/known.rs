//! Ports whose types are known.
#![allow(unsafe_code, reason = "takes a port for what it has said that it is")]

use std::any::{Any, TypeId};
use std::ops::Deref;

use crate::backend::Port;

/// A port, and what it is: to ask it each time is a call, and a backend asks for each wait and each signal of a submission.
pub(crate) struct Known {
    port: Box<dyn Port>,
    is: TypeId,
}

impl Known {
    pub(crate) fn new(port: Box<dyn Port>) -> Self {
        let any: &dyn Any = &*port;
        let is = any.type_id();
        Self { port, is }
    }

    /// The port, if it is of type `P`.
    #[inline]
    pub(crate) fn downcast<P: Port>(&self) -> Option<&P> {
        if self.is != TypeId::of::<P>() {
            return None;
        }
        let port: *const dyn Port = &raw const *self.port;
        // SAFETY: the box holds a `P`: `new` asked the trait object for its type, which the compiler answers and no
        // implementation can change, and nothing has exchanged the box since. The reference lives no longer than `self`.
        Some(unsafe { &*port.cast::<P>() })
    }
}

impl Deref for Known {
    type Target = dyn Port;

    #[inline]
    fn deref(&self) -> &dyn Port {
        &*self.port
    }
}
