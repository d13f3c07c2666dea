"""Options of the commands, in the groups in which help shows them. Decides which of them go together; the others are an
InputError.
"""
