//! Nothing lives here: this package exists for its tests of the workspace as a whole.
