"""`tfps bench transport`: one message to a parameter server and back."""
