"""What a device can reach at best: measured peaks, floors, the cost model and its predictions.

Face: roofline, measured_peaks, predictor, cost_model.
"""
