"""Use cases against the ports: one public function or class a file."""
