//! Tests of the bench: its rows and limits, short runs, and what its pages say.

mod page;
mod rows;
mod run;
