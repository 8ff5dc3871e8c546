"""What a device can reach at best: measured peaks, floors, the cost model and its predictions.

Face: measured_peaks, predictor, roofline.
"""
