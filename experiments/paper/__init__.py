"""The paper's table, figures and numbers beside ours, with corrections."""
