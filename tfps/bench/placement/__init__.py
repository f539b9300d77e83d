"""`tfps bench placement`: how evenly servers are filled, planned and not started."""
