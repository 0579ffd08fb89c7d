"""The recurrent models of 2014 and 2015, which the Transformer replaced."""
