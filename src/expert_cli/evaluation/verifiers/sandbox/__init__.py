"""Programs of strangers run here: query engines and Node.js, in processes of their own, within limits."""
