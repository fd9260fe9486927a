//! A signal that the engine makes later, and that an author shows as made.

use syncline_core::backend::Relayed;

fn made_early(relayed: &[Relayed]) {
    for signal in relayed {
        signal.clone().complete(); //~ no method named `complete`
    }
}

fn main() {}
