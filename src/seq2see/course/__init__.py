"""Teaching material built on the library: lessons, word vectors and a generated corpus. The core never imports it."""
