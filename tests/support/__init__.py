"""What the tests share: servers, fakes, builders."""
