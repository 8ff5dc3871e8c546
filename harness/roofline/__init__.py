"""What a device can reach: physical floors, rooflines, measured peaks, and cost-model predictions.

Face: ceilings, measured_peaks, predictor, roofline.
"""
