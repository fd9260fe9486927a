//! The bench's rows, a short run of them, and the page that is made of recorded runs.

mod page;
mod rows;
mod run;
