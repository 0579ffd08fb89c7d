"""From batches to a trained model that nothing can lose."""
