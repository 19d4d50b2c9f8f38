"""How the cost of a pass grows: measurements, a model of them, and a simulated cluster."""
