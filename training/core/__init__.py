"""Parts shared by all trainings: lessons, learners, schedules, memories."""
