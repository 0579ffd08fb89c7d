"""What both servers share: errors, access control and size limits, worker threads with deadlines, and listening."""
