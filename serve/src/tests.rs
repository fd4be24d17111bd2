//! The server, asked and attacked over real connections.

mod attacks;
mod made;
mod uses;
