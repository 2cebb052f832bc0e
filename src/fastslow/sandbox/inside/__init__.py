"""What runs inside the sandbox: a folder of its own, without anything but Python's standard library, because the
child process imports it as the package `inside` and nothing else of this project."""
