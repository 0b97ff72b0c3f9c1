"""What every training shares: lessons, learners, schedules, memories."""
